"""Make docs/pictures again: train the quick start with and without memory, and show it; used by `make pictures`.

Runs that are already in build/pictures are not trained again. Needs Chromium and playwright, as the tests of pages do.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from playwright.sync_api import Page, sync_playwright

from support.chromium import find_chromium, launch

ROOT = Path(__file__).parents[1]
BUILD, PICTURES = ROOT / "build" / "pictures", ROOT / "docs" / "pictures"
SWEEP = "memory"
RUN = f"{SWEEP}/001-core_lstm-seed_0"
BROKEN = "examples/broken_policies.py:FlagsAsIndices"
FAILED_AUDIT = 1  # exit code


def main() -> None:
    BUILD.mkdir(parents=True, exist_ok=True)
    PICTURES.mkdir(exist_ok=True)
    here = ["--runs-dir", str(BUILD)]
    holdfast(
        "sweep", "settings=quickstart", "policy.core=lstm,none", "seed=0..2", "--name", SWEEP, "--jobs", "2", *here
    )
    shutil.copyfile(BUILD / SWEEP / "curves.svg", PICTURES / "curves.svg")
    holdfast("view", RUN, *here, "--gif", str(PICTURES / "memory.gif"), "--png", str(PICTURES / "decision.png"))
    player, audit = BUILD / "player.html", BUILD / "audit.html"
    holdfast("view", RUN, *here, "--html", str(player))
    holdfast("audit", BROKEN, "env=memory", "--html", str(audit), code=FAILED_AUDIT)
    with tab(1180, 1330) as page:
        page.goto(player.as_uri())
        page.wait_for_selector("html[data-ready='1']", state="attached")
        page.keyboard.press("n")  # the next action that an earlier observation decided
        page.screenshot(path=PICTURES / "player.png", animations="disabled")
        page.goto(audit.as_uri())
        page.locator("#maps .maps > *").first.screenshot(path=PICTURES / "flags.png")
    with tab(1180, 1000) as page, server() as url:
        page.goto(url)
        page.wait_for_selector("#list tbody tr")
        page.click("#all")
        page.wait_for_selector("[data-metric=episode_return] .trace >> nth=11", state="attached")
        page.screenshot(path=PICTURES / "runs.png")
    for path in sorted(PICTURES.iterdir()):
        print(f"{path.stat().st_size / 1000:6.0f} kB  {path.relative_to(ROOT)}")


def holdfast(*words: str, code: int = 0) -> None:
    print("holdfast", *words, flush=True)
    done = subprocess.run([sys.executable, "-m", "holdfast", *words], cwd=ROOT, check=False)
    if done.returncode != code:
        sys.exit(f"holdfast {words[0]} ended with exit code {done.returncode}")


@contextmanager
def tab(width: int, height: int) -> Iterator[Page]:
    """Yield a tab of a browser whose pictures are sharp on fine screens too."""
    size: Any = {"width": width, "height": height}
    with sync_playwright() as playwright:
        browser = launch(playwright, find_chromium())
        yield browser.new_page(viewport=size, device_scale_factor=1.5, color_scheme="light")
        browser.close()


@contextmanager
def server() -> Iterator[str]:
    """Yield the address of a server of the runs."""
    words = [sys.executable, "-m", "holdfast", "view", "--runs-dir", str(BUILD.relative_to(ROOT)), "--port", "0"]
    process = subprocess.Popen(words, cwd=ROOT, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    try:
        yield next(word for word in process.stdout.readline().split() if word.startswith("http"))
    finally:
        process.terminate()
        process.wait()


if __name__ == "__main__":
    main()
