"""Build the documentation site in build/site from docs/ and the pages beside it; used by `make docs`.

The pages are first copied to build/pages, because the site also has ARCHITECTURE.md, CONTRIBUTING.md, CHANGELOG.md and the
examples that pages link to, which are outside of docs/. Their links are changed to fit.
"""

import posixpath
import re
import shutil
import subprocess
import sys
from pathlib import Path

from check_links import INLINE_LINK, check_site, is_external, tracked_files

ROOT = Path(__file__).parents[1]
PAGES, SITE = ROOT / "build" / "pages", ROOT / "build" / "site"
BESIDE_DOCS = ("ARCHITECTURE.md", "CONTRIBUTING.md", "CHANGELOG.md")
FENCED_BLOCK = re.compile(r"(^```.*?^```[^\n]*$)", re.DOTALL | re.MULTILINE)


def place(path: str) -> str | None:
    """Return where a file of the repository is in build/pages, or None if it is not on the site."""
    if path == "README.md":
        return "index.md"
    if path in BESIDE_DOCS:
        return path
    if path.startswith("examples/") and path.endswith(".py"):
        return path.removesuffix(".py") + ".md"
    return path.removeprefix("docs/") if path.startswith("docs/") else None


def page_text(root: Path, path: str) -> str:
    """Return the Markdown of a file as the site has it."""
    text = (root / path).read_text()
    if path.endswith(".py"):
        return f"# {path}\n\n```python\n{text}```\n"
    parts = FENCED_BLOCK.split(text)
    parts[::2] = [adapt(part, path) for part in parts[::2]]
    parts[1::2] = [
        re.sub(r"^(```\w+) .*", r"\1", block, count=1) for block in parts[1::2]
    ]  # ```py skrl is not a block there
    return "".join(parts)


def adapt(text: str, path: str) -> str:
    """Change links of the page `path` to those of the site, and what Python-Markdown reads differently from GitHub."""
    text = re.sub(r"^<!--.*-->\n", "", text, flags=re.MULTILINE)  # a table below a comment would not be one
    text = re.sub(r"^  (?=- )", "    ", text, flags=re.MULTILINE)  # lists in lists need four spaces

    def moved(link: re.Match) -> str:
        target, _, anchor = link[1].partition("#")
        if not target or is_external(target):
            return link[0]
        there = place(posixpath.normpath(posixpath.join(posixpath.dirname(path), target)))
        if there is None:
            raise SystemExit(f"{path}: {target} is not on the site; see place() in tools/build_site.py")
        new = posixpath.relpath(there, posixpath.dirname(place(path) or "") or ".")
        return link[0].replace(link[1], f"{new}#{anchor}" if anchor else new)

    return INLINE_LINK.sub(moved, text)


def write_pages(root: Path, pages: Path) -> None:
    """Copy what the site is made of, as far as git tracks it, into the folder `pages`."""
    shutil.rmtree(pages, ignore_errors=True)
    for path in sorted(tracked_files(root)):
        there = place(path)
        if there is None or path == "README.md":  # the site's first page is docs/index.md
            continue
        (pages / there).parent.mkdir(parents=True, exist_ok=True)
        if path.endswith((".md", ".py")):
            (pages / there).write_text(page_text(root, path))
        else:
            shutil.copyfile(root / path, pages / there)


def main() -> int:
    write_pages(ROOT, PAGES)
    shutil.rmtree(SITE, ignore_errors=True)
    command = [str(Path(sys.executable).with_name("zensical")), "build", "--clean", "--strict"]
    if subprocess.run(command, cwd=ROOT).returncode:
        return 1
    problems = check_site(SITE)
    site = SITE.relative_to(ROOT)
    done = f"Open {site}/index.html; with search: python3 -m http.server --bind 127.0.0.1 --directory {site}"
    print("\n".join(problems) or done)
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
