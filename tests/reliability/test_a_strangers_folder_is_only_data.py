"""A run folder from somebody else names no module, no file outside itself and no link that is followed.

Each kind goes through `evaluate`, `audit` and `train run=`. Whether the command succeeds or refuses: no module is imported,
nothing around the run changes, and nothing waits on a pipe.
"""

import ast
import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import holdfast
from support.commands import Commands
from support.hostile import COMMANDS, GOLDEN, READ, SECRET, TARGET, Place, check, check_harmless, make_place, pipe
from support.hostile_kinds import MORE

ROOT = Path(holdfast.__file__).parent
OUTSIDE = "theirs"  # a folder of the user outside the run


def outside(place: Place) -> Path:
    """A folder with a file, a checkpoint-like folder and a left-over, none of which belongs to the run."""
    folder = place.marker.parent / OUTSIDE
    (folder / ".mine.partial").mkdir(parents=True)
    (folder / ".mine.partial" / "notes.txt").write_text("of ten years")
    shutil.copytree(place.checkpoint, folder / "00000099")
    (folder / "keep.txt").write_text("keep")
    return folder


def link_to_file(name: str) -> Callable[[Place], Any]:
    return lambda place: place.link(name)


def link_to_folder(name: str) -> Callable[[Place], Any]:
    def make(place: Place) -> None:
        target = outside(place)
        shutil.rmtree(place.run / name, ignore_errors=True)
        (place.run / name).symlink_to(target)

    return make


def folder(name: str) -> Callable[[Place], Any]:
    def make(place: Place) -> None:
        (place.run / name).unlink(missing_ok=True)
        (place.run / name).mkdir()
        (place.run / name / "full").write_text("")

    return make


def in_checkpoint(name: str, make: Callable[[Path, Place], Any]) -> Callable[[Place], Any]:
    def change(place: Place) -> None:
        file = place.checkpoint / name
        file.unlink()
        make(file, place)

    return change


def world(name: str) -> Callable[[Place], Any]:
    """A module in the run folder that makes the marker when it is imported, as the run's world."""

    def make(place: Place) -> None:
        (place.run / "evil.py").write_text(f"open({str(place.marker)!r}, 'w')\n")
        place.settings(lambda tree: tree.update(env={"name": name.format(run=place.run.absolute())}))

    return make


def names(key: str, value: str) -> Callable[[Place], Any]:
    def make(place: Place) -> None:
        path = place.marker.parent / value
        os.mkfifo(path)
        place.settings(lambda tree: tree.update(policy={key: str(path)}))

    return make


RUN_FILES = ("config.yaml", "metrics.jsonl", "summary.json", "failed.json", "run-id", "lock")
PARTIAL = (".config.yaml.partial", ".summary.json.partial", ".run-id.partial")
KINDS: dict[str, Callable[[Place], Any]] = {
    **{f"a link as {name}": link_to_file(name) for name in (*RUN_FILES, *PARTIAL, "wandb-id")},
    **{f"a pipe as {name}": pipe(name) for name in (*RUN_FILES, *PARTIAL)},
    **{f"a folder as {name}": folder(name) for name in (*RUN_FILES, *PARTIAL)},
    **{f"a link as {name}/": link_to_folder(name) for name in ("checkpoints", "refused", "skipped", "tensorboard")},
    **{
        f"a link as {name} of the checkpoint": in_checkpoint(
            name, lambda file, place: file.symlink_to(place.marker.parent / TARGET)
        )
        for name in ("manifest.json", "facts.json", "policy.safetensors", "world.safetensors")
    },
    **{
        f"a pipe as {name} of the checkpoint": in_checkpoint(name, lambda file, place: os.mkfifo(file))
        for name in ("manifest.json", "facts.json", "policy.safetensors", "world.safetensors")
    },
    **{
        f"{name} as the world": world(name)
        for name in (
            "gym:runs.victim.evil:CartPole-v1",
            "gymvec:runs.victim.evil:CartPole-v1",
            "pettingzoo:runs.victim.evil",
            "gym:antigravity:CartPole-v1",
            "gymvec:antigravity:CartPole-v1",
            "pettingzoo:antigravity",
            "./runs/victim/evil.py:Env",
            "runs/victim/evil.py:Env",
            "{run}/evil.py:Env",
        )
    },
    "a link as the newest checkpoint": lambda p: (p.run / "checkpoints" / "00000099").symlink_to(
        outside(p) / "00000099"
    ),
    "a pipe as the newest checkpoint": lambda p: os.mkfifo(p.run / "checkpoints" / "00000099"),
    "a link as a left-over": lambda p: (p.run / "checkpoints" / ".a.partial").symlink_to(outside(p)),
    "a pipe as the agent's graph": names("agent", "graph.yaml"),
    "a pipe as the weights to start from": names("weights", "weights"),
    "rubbish as the run's id": lambda p: p.text("run-id", b"../../x\xff"),
    "the id of another run": lambda p: p.text("run-id", "0" * 32),
    **MORE,
}
MAX_LINES = dict.fromkeys(
    ("60 damaged checkpoints and no other", "5000 damaged checkpoints"), 7
)  # three, and how many more


@pytest.fixture(scope="module")
def commands():
    with Commands() as warm:
        yield warm


@pytest.fixture
def place(tmp_path):
    yield make_place(tmp_path)
    subprocess.run(["rm", "-rf", tmp_path], check=True)  # pytest cannot remove folders that are nested deeply


@pytest.mark.slow
@pytest.mark.parametrize("command", READ)
@pytest.mark.parametrize("kind", KINDS)
def test_nothing_is_imported_written_or_waited_for(commands, place, command, kind):
    KINDS[kind](place)
    before = place.outside()
    words = [word.replace("1e6", "6656") for word in COMMANDS[command]]
    extra = ["tensorboard=on"] if command == "train" and "tensorboard" in kind else []
    done = commands(*words, *extra, cwd=place.marker.parent)
    assert place.outside() == before, done.err
    assert SECRET not in done.err + done.out
    if done.code != 0:
        check(done, place, MAX_LINES.get(kind, 4))
    else:
        check_harmless(done, place)  # an audit or a training took place
        assert len(done.lines) <= 10, done.err


@pytest.mark.slow
@pytest.mark.parametrize("command", READ)
@pytest.mark.parametrize("name", ["gym:runs.victim.evil:CartPole-v1", "pettingzoo:runs.victim.evil"])
def test_the_refusal_says_what_to_add(commands, place, command, name):
    world(name)(place)
    done = commands(*COMMANDS[command], cwd=place.marker.parent)
    assert done.code == 2
    assert "runs the code in runs.victim.evil" in done.err
    assert done.lines[-1] == f"env={name}"


@pytest.mark.slow
@pytest.mark.parametrize("command", READ)
def test_a_world_named_again_on_the_command_line_is_built_as_the_run_had_it(commands, place, command):
    (place.marker.parent / "mine.py").write_text("import gymnasium\n")
    place.settings(lambda tree: tree["env"].update(name="gym:mine:CartPole-v1"))
    words = [word.replace("1e6", "6656") for word in COMMANDS[command]]
    target = [*words[:2], "env=gym:mine:CartPole-v1", *words[2:]]
    done = commands(*target, cwd=place.marker.parent)
    assert done.code == 0, done.err


def test_there_are_at_least_80_kinds_with_those_of_hostile_files():
    from importlib.util import module_from_spec, spec_from_file_location

    spec = spec_from_file_location("hostile_files", Path(__file__).with_name("test_a_hostile_file_does_nothing.py"))
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    assert len(KINDS) + len(module.CONFIG) + len(module.CHECKPOINT) + len(module.FACTS) + len(module.GOES_ON) >= 100


# ------------------------------------------------------------------------------------------------ read off the source

# Calls that open, list, make, move or remove files by path. Files of a run are reached through holdfast.files.Folder only.
BY_PATH = {
    "open", "read_text", "read_bytes", "write_text", "write_bytes", "unlink", "rmdir", "mkdir", "makedirs", "rename",
    "replace", "rmtree", "remove", "touch", "symlink_to", "iterdir", "glob", "rglob", "listdir", "scandir", "copytree",
    "copy", "move",
}  # fmt: skip
PATH_OWNERS = {"os", "shutil", "io", "path", "file", "Path"}
ALLOWED = {
    # (file, call): why this is not a file of a run
    ("config/files.py", "read_named"): "a settings file that the user named; the config.yaml of a run is not read so",
    ("policies/registry.py", "read_named"): "the graph of an agent that the user named",
    ("config/files.py", "read_text"): "the ready-made settings of the package",
    ("config/files.py", "glob"): "the ready-made settings of the package",
    ("policies/settings.py", "glob"): "the agents of the package",
    ("runs/folder.py", "glob"): "the names of the runs in the user's runs folder, for a message",
    ("config/registry.py", "read_text"): "source files of the package",
    ("config/registry.py", "glob"): "source files of the package",
    ("streams.py", "open"): "the null device",
    ("custom_code.py", "open"): "the working directory of the process",
    ("user_code.py", "remove"): "an entry of sys.path",
    ("user_code.py", "listdir"): "names of files beside one that the user named, for a message",
    ("policies/parts/linear.py", "read_text"): "/proc/cpuinfo",
    ("audit/known_bugs.py", "read_text"): "data of the package",
    ("audit/page.py", "read_text"): "the look of pages, of the package",
    ("runs/folder.py", "mkdir"): "the run folder itself, which the user named",
    ("runs/folder.py", "rmdir"): "the run folder itself, which the user named",
    ("runs/listing.py", "scandir"): "the folders in the user's runs folder; of links, nothing below is listed",
    ("export/files.py", "read_named"): "an exported file and its proof, which the user named with --check",
    ("export/mettagrid.py", "glob"): "the folder that the user named with --mettagrid, and a staging folder beside it",
    (
        "export/mettagrid.py",
        "iterdir",
    ): "the folder that the user named with --mettagrid, and a staging folder beside it",
    ("export/mettagrid.py", "mkdir"): "the folder that the user named with --mettagrid, and a staging folder beside it",
    (
        "export/mettagrid.py",
        "read_bytes",
    ): "the folder that the user named with --mettagrid, and a staging folder beside it",
    (
        "export/mettagrid.py",
        "rename",
    ): "the folder that the user named with --mettagrid, and a staging folder beside it",
    (
        "export/mettagrid.py",
        "rmtree",
    ): "the folder that the user named with --mettagrid, and a staging folder beside it",
    (
        "export/mettagrid.py",
        "write_bytes",
    ): "the folder that the user named with --mettagrid, and a staging folder beside it",
    (
        "export/mettagrid.py",
        "write_text",
    ): "the folder that the user named with --mettagrid, and a staging folder beside it",
    ("view/mettascope.py", "replace"): "replays in the folder that the user named with --mettascope",
    ("view/mettascope.py", "unlink"): "replays in the folder that the user named with --mettascope",
    ("outputs.py", "write_bytes"): "a file that the user named, such as --html FILE",
    ("view/clips.py", "read_bytes"): "a clip that was just made, in a temporary folder",
    ("view/page.py", "read_text"): "the page's own files",
    ("view/serve/site.py", "read_bytes"): "the site's own files, and plotly's script, of the installed packages",
    ("view/serve/site.py", "iterdir"): "the site's own files",
    ("sweeps/store.py", "glob"): "the names of the sweeps in the user's runs folder, for a message",
    ("sweeps/store.py", "rmdir"): "the folder of a sweep that could not begin, if it is empty",
    ("sweeps/check.py", "open"): "pipes",
}


def calls_by_path(source: str) -> set[str]:
    """Return the calls in a file that reach files by path, such as open(...), path.unlink() or (a / b).read_text()."""
    found = set()
    for node in ast.walk(ast.parse(source)):
        match node:
            case ast.Call(func=ast.Name(id="open" | "read_named" as name)):
                found.add(name)
            case ast.Call(func=ast.Attribute(attr=name, value=owner)) if name in BY_PATH:
                last = ast.unparse(owner).split(".")[-1].split("(")[0]
                always = ("read_text", "write_text", "read_bytes", "write_bytes", "iterdir", "unlink", "glob", "rmdir")
                if isinstance(owner, ast.BinOp) or last in PATH_OWNERS or name in always:
                    found.add(name)
    return found


def test_files_of_a_run_are_opened_in_one_place_only():
    found = {
        (path.relative_to(ROOT).as_posix(), call)
        for path in ROOT.rglob("*.py")
        if path != ROOT / "files.py"
        for call in calls_by_path(path.read_text())
    }
    assert found == set(ALLOWED)


@pytest.mark.parametrize(
    "source",
    [
        "open(path)",
        "read_named(path, 100)",
        "path.open('rb')",
        "(run / 'config.yaml').open()",
        "(run / 'a').read_text()",
        "anything.read_bytes()",
        "os.open(name, flags)",
        "io.open(name)",
        "os.replace(a, b)",
        "shutil.rmtree(gone)",
        "path.mkdir()",
        "self.path.iterdir()",
    ],
)
def test_each_way_to_open_by_path_is_seen(source):
    assert calls_by_path(source)


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_runs_and_compare_only_look(commands, place, kind):
    """Also in the run itself nothing changes; the only new file is the picture of `compare`."""
    shutil.copytree(GOLDEN, place.run.parent / "other")
    KINDS[kind](place)
    before = place.outside(), place.inside()
    listed = commands("runs", cwd=place.marker.parent)
    assert listed.code == 0, listed.err
    assert "\nother  " in listed.out, "one run hides no other"
    compared = commands("compare", "victim", "other", cwd=place.marker.parent)
    for done in (listed, compared):
        check_harmless(done, place)
        assert len(done.lines) <= 4, done.err
        assert SECRET not in done.err + done.out
    (place.run.parent / "compare.svg").unlink(missing_ok=True)
    assert (place.outside(), place.inside()) == before
