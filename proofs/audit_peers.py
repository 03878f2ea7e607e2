"""`make audit-peers`: audit recurrent policies of other libraries, each library in an environment of its own.

Prints each audit in full and runs the scripts in docs/audit-peers.md. Exit code 0: the results are that page's rows, and its
scripts run.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import re
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from peers import audited
from peers.environments import REQUIREMENTS, ROOT, make_environment

if TYPE_CHECKING:
    from holdfast.audit import Report

PAGE = ROOT / "docs" / "audit-peers.md"
PACKAGES = {
    "sb3": ["sb3-contrib", "stable-baselines3"],
    "puffer": ["pufferlib-core", "mettagrid"],
    "skrl": ["skrl"],
    "rl_games": ["rl-games"],
    "rsl_rl": ["rsl-rl-lib"],
    "torchrl": ["torchrl"],
}
# Without its needs: it asks for exactly torch 2.9.0, and then both sides would not run on the same kernels.
WITHOUT_NEEDS = {"puffer": ["--no-deps", "pufferlib-core==3.0.23"]}


def row(report: Report) -> str:
    """Return the row of the page's table for this report."""
    counts = " | ".join(str(number) for number in report.counts().values())
    failed = [f"`{finding.check.name}`" for finding in report.findings if finding.verdict == "FAIL"]
    return f"| {report.name} | {counts} | {', '.join(failed) or 'nothing'} |"


def scripts(library: str) -> list[str]:
    """Return the code blocks of the page that are marked `py LIBRARY`."""
    return re.findall(rf"^```py {library}\n(.*?)^```", PAGE.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE)


def write(rows: list[str]) -> None:
    """Replace the rows of the same name."""
    by_name = {row.split("|")[1]: row for row in rows}
    lines = PAGE.read_text(encoding="utf-8").split("\n")
    changed = [by_name.get(line.split("|")[1], line) if line.startswith("| ") else line for line in lines]
    PAGE.write_text("\n".join(changed), encoding="utf-8")


def audit_library(library: str, rewrite: bool) -> bool:
    """Audit the policies of a library in this environment and run its scripts. Return whether the page is right."""
    import torch

    from holdfast.audit import audit
    from holdfast.cli.audit_text import report_text

    rows = []
    for peer in getattr(audited, library)():
        torch.manual_seed(0)
        subject = peer.make()
        subject.name, subject.declared = peer.name, peer.declared
        report = audit(subject)
        rows.append(row(report))
        print(f"{report_text(report)}\n", flush=True)
    if rewrite:
        write(rows)
    page = PAGE.read_text(encoding="utf-8").splitlines()
    missing = [row for row in rows if row not in page]
    failed = 0
    for number, script in enumerate(scripts(library), 1):
        ran = subprocess.run([sys.executable, "-W", "ignore", "-c", script], capture_output=True, text=True)
        failed += ran.returncode != 0
        print(f"script {number}: {ran.stdout.strip() if ran.returncode == 0 else ran.stderr.strip()}")
    print(", ".join(f"{name} {importlib.metadata.version(name)}" for name in [*PACKAGES[library], "torch"]))
    if missing:
        print(f"rows missing in {PAGE.name} (--write updates them):", *missing, sep="\n")
    else:
        print(f"results match {PAGE.name}")
    print(flush=True)
    return not (missing or failed)


def install(library: str) -> Path:
    """Return the Python of the library's environment, with Holdfast in it."""
    python = make_environment(library, REQUIREMENTS[library])
    stamp = python.parents[1] / ".installed-holdfast"
    if not stamp.exists():
        print(f"Installing Holdfast into {python.parents[1].name} ...", flush=True)
        for packages in (["--editable", str(ROOT)], WITHOUT_NEEDS.get(library)):
            if packages:
                subprocess.run([str(python), "-m", "pip", "install", "--quiet", *packages], check=True)
        stamp.touch()
    return python


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--write", action="store_true", help="update the rows of the page")
    parser.add_argument("--only", choices=PACKAGES, nargs="+", default=[*PACKAGES], help="audit only these libraries")
    parser.add_argument("--inside", choices=PACKAGES, help=argparse.SUPPRESS)  # this is the environment of a library
    options = parser.parse_args()
    if options.inside:
        raise SystemExit(not audit_library(options.inside, options.write))
    wrong = []
    for library in options.only:
        command = [str(install(library)), "-W", "ignore", __file__, "--inside", library]
        if subprocess.run([*command, *(["--write"] if options.write else [])]).returncode:
            wrong.append(library)
    print(f"differs from {PAGE.name}: {', '.join(wrong)}" if wrong else f"all results match {PAGE.name}")
    raise SystemExit(bool(wrong))


if __name__ == "__main__":
    main()
