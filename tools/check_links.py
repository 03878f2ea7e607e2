"""Check the links of the Markdown files of this repository, and of the built documentation site.

    python tools/check_links.py                    # files and headings, as on a page of the repository
    python tools/check_links.py --site build/site  # the same in HTML; and that a browser loads nothing from other hosts

A relative link must lead to a file that git tracks, and its #anchor to a heading. Of links to other hosts only the form is
checked, nothing is fetched.
"""

import argparse
import posixpath
import re
import subprocess
import sys
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from typing import NamedTuple
from urllib.parse import unquote, urlsplit

ROOT = Path(__file__).parents[1]
INLINE_LINK = re.compile(r"\]\(\s*<?([^\s<>()]*(?:\([^\s<>()]*\)[^\s<>()]*)*)>?(?:\s+\"[^\"]*\")?\s*\)")
DEFINED_LINK = re.compile(r"^ {0,3}\[[^\]]+\]:\s+<?([^\s<>]+)>?")
HTML_LINK = re.compile(r"<(?:a|img|source)\b[^>]*?\b(?:href|src|srcset)=\"([^\"]*)\"")
LOADING_TAGS = {
    "script",
    "img",
    "iframe",
    "source",
    "video",
    "audio",
    "embed",
    "object",
    "track",
    "input",
    "use",
    "image",
}
RELATIONS_NOT_LOADED = {"canonical", "next", "prev", "alternate", "license", "author"}
HOST = re.compile(r"[a-z0-9-]+(\.[a-z0-9-]+)+(:\d+)?", re.IGNORECASE)


class Link(NamedTuple):
    line: int
    target: str


def markdown_links(text: str) -> Iterator[Link]:
    """Find the links and pictures of a Markdown page; code has none."""
    for number, line in enumerate(without_code(text).splitlines(), 1):
        for pattern in (INLINE_LINK, DEFINED_LINK, HTML_LINK):
            for target in pattern.findall(line):
                yield Link(number, target)


def without_code(text: str) -> str:
    """Blank out fenced blocks and inline code; line numbers stay."""
    lines, fence = [], ""
    for line in text.splitlines():
        mark = re.match(r"\s*(```+|~~~+)", line)
        if fence:
            lines.append("")
            fence = "" if mark and mark[1].startswith(fence) else fence
        elif mark:
            lines.append("")
            fence = mark[1]
        else:
            lines.append(re.sub(r"(`+)(?:(?!\1).)+\1", "", line))
    return "\n".join(lines)


def anchors(text: str) -> set[str]:
    """Return the anchors of a Markdown page's headings: lower case, no punctuation, - for a space, -1 for a repetition."""
    found: set[str] = set(re.findall(r"<a (?:id|name)=\"([^\"]+)\"", text))
    fence = ""
    for line in text.splitlines():
        mark = re.match(r"\s*(```+|~~~+)", line)
        if mark:
            fence = "" if fence and mark[1].startswith(fence) else fence or mark[1]
        heading = None if fence else re.match(r"#{1,6}\s+(.*?)\s*#*\s*$", line)
        if heading:
            words = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading[1]).lower()
            anchor = re.sub(r"[^\w -]", "", words).replace(" ", "-")
            repeated = 0
            while (unique := f"{anchor}-{repeated}" if repeated else anchor) in found:
                repeated += 1
            found.add(unique)
    return found


def tracked_files(root: Path) -> set[str]:
    listed = subprocess.run(["git", "-C", str(root), "ls-files", "-z"], capture_output=True, check=True, text=True)
    return {name for name in listed.stdout.split("\0") if name}


def check_repository(root: Path) -> list[str]:
    """Return FILE:LINE and what is wrong, for every broken link of the Markdown files that git tracks."""
    tracked = tracked_files(root)
    pages = {name: (root / name).read_text() for name in sorted(tracked) if name.endswith(".md")}
    problems = []
    for name, text in pages.items():
        for line, target in markdown_links(text):
            problem = form_problem(target) if is_external(target) else file_problem(root, tracked, pages, name, target)
            if problem:
                problems.append(f"{name}:{line}: {problem}")
    return problems


def is_external(target: str) -> bool:
    return target.startswith("//") or bool(re.match(r"[a-z][a-z0-9+.-]*:", target, re.IGNORECASE))


def form_problem(target: str) -> str | None:
    parts = urlsplit(target)
    if parts.scheme == "mailto":
        return None if "@" in parts.path else f"{target} is not an address"
    if parts.scheme not in ("http", "https"):
        return f"{target} is neither a path nor an address that begins with https://"
    if not HOST.fullmatch(parts.netloc):
        return f"{target} has no valid host"
    return None


def file_problem(root: Path, tracked: set[str], pages: dict[str, str], page: str, target: str) -> str | None:
    """Say what is wrong with a link from `page` to a file of the repository."""
    path, _, anchor = target.partition("#")
    if path.startswith("/"):
        return f"{target} is an absolute path; write it relative to the page"
    there = posixpath.normpath(posixpath.join(posixpath.dirname(page), unquote(path))) if path else page
    if there.startswith(".."):
        return f"{target} leads out of the repository"
    if not (root / there).exists():
        return f"{target}: there is no file {there}"
    if there not in tracked and not any(name.startswith(f"{there}/") for name in tracked):
        return f"{target}: git does not track {there}"
    if anchor and there in pages and anchor not in anchors(pages[there]):
        return f"{target}: {there} has no heading #{anchor}"
    return None


class Page(HTMLParser):
    """What an HTML page links to, what a browser loads for it, and the ids that links may name."""

    def __init__(self, text: str):
        super().__init__()
        self.ids: set[str] = set()
        self.links: list[Link] = []
        self.loaded: list[Link] = []
        self.inside = ""
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = {name: value or "" for name, value in attrs}
        self.inside = tag
        self.ids |= {given[name] for name in ("id", "name") if name in given}
        relations = set(given.get("rel", "").split())
        is_loaded = tag in LOADING_TAGS or (tag == "link" and not relations & RELATIONS_NOT_LOADED)
        found = [given[name] for name in ("href", "src", "data", "poster", "xlink:href") if name in given]
        found += [part.split()[0] for part in given.get("srcset", "").split(",") if part.strip()]
        self.loaded += [Link(self.getpos()[0], target) for target in found if is_loaded]
        self.loaded += [Link(self.getpos()[0], target) for target in css_targets(given.get("style", ""))]
        if tag == "a" or is_loaded:
            self.links += [Link(self.getpos()[0], target) for target in found]

    def handle_data(self, data: str) -> None:
        if self.inside == "style":
            self.loaded += [Link(self.getpos()[0], target) for target in css_targets(data)]

    def handle_endtag(self, tag: str) -> None:
        self.inside = ""


def css_targets(text: str) -> list[str]:
    imported = re.findall(r"@import\s+[\"']([^\"']+)", text)
    return imported + re.findall(r"url\(\s*[\"']?([^\"')]+)", text)


def check_site(site: Path) -> list[str]:
    """Return FILE:LINE and what is wrong, for every broken link of a folder of HTML, and for what other hosts would serve."""
    pages = {path.relative_to(site).as_posix(): Page(path.read_text()) for path in sorted(site.rglob("*.html"))}
    problems = []
    for name, page in pages.items():
        for line, target in page.loaded:
            if is_external(target) and not target.startswith("data:"):
                problems.append(f"{name}:{line}: a browser loads {target} from another host")
        for line, target in page.links:
            problem = None if is_external(target) else html_problem(site, pages, name, target)
            if problem:
                problems.append(f"{name}:{line}: {problem}")
    for path in sorted(site.rglob("*.css")):
        for target in css_targets(path.read_text()):
            if is_external(target) and not target.startswith("data:"):
                problems.append(f"{path.relative_to(site).as_posix()}:1: a browser loads {target} from another host")
    return problems


def html_problem(site: Path, pages: dict[str, Page], page: str, target: str) -> str | None:
    path, _, anchor = target.partition("#")
    path = unquote(path.partition("?")[0])
    folder = "" if path.startswith("/") else posixpath.dirname(page)
    there = posixpath.normpath(posixpath.join(folder, path.lstrip("/"))) if path else page
    if (site / there).is_dir():
        there = posixpath.normpath(posixpath.join(there, "index.html"))
    if not (site / there).is_file():
        return f"{target}: the site has no {there}"
    if anchor and there in pages and unquote(anchor) not in pages[there].ids:
        return f"{target}: {there} has no #{anchor}"
    return None


def main() -> int:
    parser = argparse.ArgumentParser(description="Check the links of the repository, or of the built site.")
    parser.add_argument("--site", type=Path, metavar="DIR", help="check the HTML in this folder instead")
    site = parser.parse_args().site
    if site and not (site / "index.html").is_file():
        print(f"{site} has no index.html: run `make docs` first", file=sys.stderr)
        return 2
    problems = check_site(site) if site else check_repository(ROOT)
    print("\n".join(problems) or f"All links of {site or 'the repository'} work.")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
