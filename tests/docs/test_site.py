"""mkdocs.yml lists every page once, and tools/build_site.py makes its pages of those of the repository."""

import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).parents[2]
BESIDE_DOCS = ["ARCHITECTURE.md", "CHANGELOG.md", "CONTRIBUTING.md"]


class WithoutTags(yaml.SafeLoader):
    """Reads a file whose tags name functions, without calling them."""


WithoutTags.add_multi_constructor("tag:yaml.org,2002:python/", lambda loader, suffix, node: None)


def settings() -> dict[str, Any]:
    return yaml.load((ROOT / "mkdocs.yml").read_text(), WithoutTags)


def pages(entries: list | str) -> list[str]:
    if isinstance(entries, str):
        return [entries]
    return [page for entry in entries for named in entry.values() for page in pages(named)]


@pytest.fixture
def site(monkeypatch):
    monkeypatch.syspath_prepend(ROOT / "tools")
    import build_site  # pyright: ignore[reportMissingImports]

    yield build_site
    for name in ("build_site", "check_links"):
        sys.modules.pop(name)


def test_the_navigation_lists_every_page_once():
    written = [path.relative_to(ROOT / "docs").as_posix() for path in (ROOT / "docs").rglob("*.md")]
    assert sorted(pages(settings()["nav"])) == sorted([*written, *BESIDE_DOCS])


def test_the_navigation_has_the_four_kinds():
    assert [title for entry in settings()["nav"] for title in entry] == [
        "Home",
        "Tutorial",
        "How-to",
        "Reference",
        "Explanation",
    ]


def test_no_fonts_from_other_hosts():
    assert settings()["theme"]["font"] is False


def test_the_folders_are_those_that_the_tool_writes(site):
    assert ROOT / settings()["docs_dir"] == site.PAGES
    assert ROOT / settings()["site_dir"] == site.SITE


@pytest.mark.parametrize(
    ("page", "link", "moved"),
    [
        ("docs/a.md", "[x](b.md#c)", "[x](b.md#c)"),
        ("docs/a.md", "[x](#c)", "[x](#c)"),
        ("docs/a.md", "[x](../ARCHITECTURE.md#the-walk)", "[x](ARCHITECTURE.md#the-walk)"),
        ("docs/a.md", "[x](../README.md)", "[x](index.md)"),
        ("docs/a.md", "[x](../examples/play_onnx.py)", "[x](examples/play_onnx.md)"),
        ("docs/a.md", "[x](https://example.org)", "[x](https://example.org)"),
        ("CONTRIBUTING.md", "![x](docs/pictures/memory.gif)", "![x](pictures/memory.gif)"),
    ],
)
def test_links_are_changed_to_those_of_the_site(site, page, link, moved):
    assert site.adapt(link, page) == moved


def test_a_link_to_a_file_that_is_not_on_the_site_is_named(site):
    with pytest.raises(SystemExit, match=r"docs/a\.md: \.\./LICENSE is not on the site"):
        site.adapt("[x](../LICENSE)", "docs/a.md")


def test_lists_and_tables_are_read_as_in_the_repository(site):
    assert site.adapt("<!-- begin -->\n| a |\n", "docs/a.md") == "| a |\n"
    assert site.adapt("- a\n  - b\n", "docs/a.md") == "- a\n    - b\n"


def test_the_first_line_of_a_block_has_only_its_language(site, tmp_path):
    (tmp_path / "a.md").write_text("# A\n\n```py skrl\nx = 1\n```\n")
    assert site.page_text(tmp_path, "a.md") == "# A\n\n```py\nx = 1\n```\n"


def test_code_blocks_stay_as_they_are(site, tmp_path):
    block = "```text\n  - b [x](../ARCHITECTURE.md)\n```\n"
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "a.md").write_text(f"# A\n\n{block}\n[x](../ARCHITECTURE.md)\n")
    assert site.page_text(tmp_path, "docs/a.md") == f"# A\n\n{block}\n[x](ARCHITECTURE.md)\n"
