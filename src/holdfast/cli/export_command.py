"""`holdfast export`: write a trained policy for other programs, or check a file that was written."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from holdfast.cli.base import PyAgent, RunsDir, Words, app
from holdfast.cli.failures import reporting_failures
from holdfast.custom_code import exits_reported
from holdfast.errors import SettingsError, printable
from holdfast.outputs import check_output

if TYPE_CHECKING:
    from holdfast.export.files import Exported


@app.command()
def export(
    run: Annotated[str | None, typer.Argument(metavar="RUN", help="Name or folder of a run.")] = None,
    words: Annotated[
        Words,
        typer.Argument(metavar="[env=NAME env.KEY=VALUE]", help="Changes to the world; default: the run's world."),
    ] = None,
    onnx: Annotated[Path | None, typer.Option(metavar="FILE", help="Write an ONNX model.")] = None,
    torch: Annotated[Path | None, typer.Option(metavar="FILE", help="Write a program of torch.export.")] = None,
    mettagrid: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="Write a policy that MettaGrid's own runner plays without Holdfast."),
    ] = None,
    check: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Repeat the proof of a file. Checking a torch program runs its code."),
    ] = None,
    checkpoint: Annotated[str | None, typer.Option(help="Checkpoint name, or `best`; default: the newest.")] = None,
    seed: Annotated[
        int,
        typer.Option(
            min=0, max=2**31 - 1, help="Seed for the proof of a file; a DIR is proved as `holdfast evaluate` plays."
        ),
    ] = 2_000_000,
    py_agent: PyAgent = None,
    runs_dir: RunsDir = Path("runs"),
) -> None:
    """Export a trained policy, normaliser, masks and memory included, with a proof that the file is the policy.

    \b
    holdfast export first --onnx first.onnx
    holdfast export runs/first --torch first.pt2 --checkpoint best
    holdfast export first env=memory env.corridor=6 --onnx long.onnx
    holdfast export first --mettagrid first-policy
    holdfast export --check first.onnx

    What is written is replayed against the policy first. docs/export.md lists inputs and outputs; docs/mettagrid-export.md is about
    MettaGrid's own runner.
    """
    with reporting_failures(), exits_reported():
        if check is not None:
            if any(option is not None for option in (run, onnx, torch, mettagrid, checkpoint, py_agent)):
                raise SettingsError(
                    "--check: takes one file and nothing else, as in holdfast export --check first.onnx."
                )
            _check(check)
            return
        if run is None:
            raise SettingsError("name a run to export, as in holdfast export first --onnx first.onnx.")
        if onnx is None and torch is None and mettagrid is None:
            raise SettingsError(
                f"name what to write, as in holdfast export {printable(run)} --onnx FILE, --torch FILE or --mettagrid DIR."
            )
        check_output("--onnx", onnx)
        check_output("--torch", torch)
        from holdfast.config import load_run_world
        from holdfast.runs import find_run
        from holdfast.runs.folder import CONFIG

        folder = find_run(run, runs_dir)
        env = load_run_world(folder / CONFIG, words or [])
        if mettagrid is not None:
            from holdfast.export.mettagrid import export_mettagrid

            typer.echo(export_mettagrid(folder, mettagrid, env, checkpoint, py_agent).text)
        if onnx is None and torch is None:
            return
        from holdfast.export import export_run

        for exported in export_run(folder, onnx, torch, checkpoint, env, py_agent, seed):
            typer.echo(_lines(exported))


def _check(file: Path) -> None:
    from holdfast.export import check

    typer.echo(f"{file} is the policy that it was exported from: {check(file)}.")


def _lines(exported: Exported) -> str:
    """Return the text printed after a file is written: what it holds, the proof, and the next command."""
    ports = exported.interface
    return (
        f"{exported.path}: {exported.bytes / 1e6:.1f} MB, {exported.kind}, checkpoint {exported.checkpoint}\n"
        f"  in:    {', '.join(map(str, ports.inputs))}\n"
        f"  out:   {', '.join(map(str, ports.outputs))}\n"
        f"  proof: {exported.proof}; stored in {exported.proof_path.name}\n"
        f"Next: holdfast export --check {exported.path}"
    )
