"""The links of all Markdown files work, and tools/check_links.py finds those that do not."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture
def links(monkeypatch):
    monkeypatch.syspath_prepend(ROOT / "tools")
    import check_links  # pyright: ignore[reportMissingImports]

    yield check_links
    sys.modules.pop("check_links")


@pytest.fixture
def repository(tmp_path):
    """Return a function that writes files into a git repository, which then tracks all but those named untracked."""
    subprocess.run(["git", "init", "--quiet", str(tmp_path)], check=True)

    def write(files: dict[str, str]) -> Path:
        for name, text in files.items():
            (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / name).write_text(text)
        tracked = [name for name in files if "untracked" not in name]
        subprocess.run(["git", "-C", str(tmp_path), "add", *tracked], check=True)
        return tmp_path

    return write


def test_the_links_of_the_repository_work(links):
    assert links.check_repository(ROOT) == []


def test_links_that_work(links, repository):
    page = """# A page
## A `code` heading, with [a link](b.md)
## Twice
## Twice
[x](docs/b.md) [x](docs/b.md#second) [x](#a-code-heading-with-a-link) [x](#twice-1) ![x](docs/p%20q.svg "title")
[x](docs) [x](https://example.org/a_(b)#c) [x](mailto:a@example.org) <https://example.org> [x][label]
`[x](missing.md)` <img src="docs/p%20q.svg" alt="x">
```text
# no heading
[x](missing.md)
```

[label]: docs/b.md#second
"""
    files = {"a.md": page, "docs/b.md": "# First\n\n## Second\n", "docs/p q.svg": "", "b.md": ""}
    assert links.check_repository(repository(files)) == []


@pytest.mark.parametrize(
    ("link", "problem"),
    [
        ("[x](missing.md)", "there is no file docs/missing.md"),
        ("![x](missing.svg)", "there is no file docs/missing.svg"),
        ('<img alt="" src="missing.gif">', "there is no file docs/missing.gif"),
        ("[x](../README.md)", "there is no file README.md"),
        ("[x](b.md#missing)", "docs/b.md has no heading #missing"),
        ("[x](#missing)", "docs/a.md has no heading #missing"),
        ("[x](#twice-2)", "docs/a.md has no heading #twice-2"),
        ("[x](#in-a-block)", "docs/a.md has no heading #in-a-block"),
        ("[x](untracked.md)", "git does not track docs/untracked.md"),
        ("[x](../../outside.md)", "leads out of the repository"),
        ("[x](/docs/b.md)", "is an absolute path"),
        ("[x](http://)", "has no valid host"),
        ("[x](https://localhost/a)", "has no valid host"),
        ("[x](file:///etc/passwd)", "is neither a path nor an address"),
        ("[x](mailto:nobody)", "is not an address"),
        ("[x]: missing.md", "there is no file docs/missing.md"),
    ],
)
def test_links_that_do_not_work(links, repository, link, problem):
    page = f"# Twice\n\n# Twice\n\n```text\n# In a block\n```\n{link}\n"
    root = repository({"docs/a.md": page, "docs/b.md": "# B\n", "docs/untracked.md": ""})
    (found,) = links.check_repository(root)
    assert found.startswith("docs/a.md:8: ")
    assert problem in found


def write_site(folder: Path, **pages: str) -> Path:
    for name, text in pages.items():
        (folder / f"{name}.html").write_text(text)
    return folder


def test_html_links_that_work(links, tmp_path):
    text = """<link rel="canonical" href="https://example.org/"><link rel="stylesheet" href="style.css?v=1">
<a href="index.html#here">x</a> <a href="#here">x</a> <a href="https://example.org">x</a> <a href=".">x</a> <h1 id="here">x</h1>
<img src="data:image/png;base64,AAAA"> <a href="/index.html">x</a> <a href="mailto:a@example.org">x</a>"""
    (tmp_path / "style.css").write_text("a { background: url(data:image/png;base64,AAAA) }")
    assert links.check_site(write_site(tmp_path, index=text)) == []


@pytest.mark.parametrize(
    ("tag", "problem"),
    [
        ('<a href="missing.html">', "the site has no missing.html"),
        ('<a href="#missing">', "index.html has no #missing"),
        ('<a href="other.html#missing">', "other.html has no #missing"),
        ('<img src="missing.png">', "the site has no missing.png"),
        (
            '<script src="https://example.org/a.js"></script>',
            "a browser loads https://example.org/a.js from another host",
        ),
        ('<link rel="stylesheet" href="//example.org/a.css">', "loads //example.org/a.css from another host"),
        ('<link rel="preconnect" href="https://example.org">', "from another host"),
        ('<img srcset="https://example.org/a.png 2x">', "from another host"),
        ('<iframe src="https://example.org"></iframe>', "from another host"),
        ('<p style="background: url(https://example.org/a.png)">', "from another host"),
        ("<style>@import 'https://example.org/a.css';</style>", "from another host"),
    ],
)
def test_html_links_that_do_not_work(links, tmp_path, tag, problem):
    (found,) = links.check_site(write_site(tmp_path, index=f"<p>\n{tag}", other="<p>"))
    assert found.startswith("index.html:2: ")
    assert problem in found


def test_style_sheets_load_nothing_from_other_hosts(links, tmp_path):
    (tmp_path / "style.css").write_text("@font-face { src: url('https://example.org/a.woff2') }")
    (found,) = links.check_site(tmp_path)
    assert "style.css:1: a browser loads https://example.org/a.woff2 from another host" in found


def test_the_command_fails_without_a_site(tmp_path):
    command = [sys.executable, str(ROOT / "tools" / "check_links.py"), "--site", str(tmp_path)]
    assert subprocess.run(command, capture_output=True).returncode == 2
