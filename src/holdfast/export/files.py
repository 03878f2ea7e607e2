"""Export a run or a policy to files, and check a file: written only if the proof holds, whole or not at all."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import torch

from holdfast.checkpoint.store import MANIFEST, MAX_MANIFEST_BYTES
from holdfast.config import load_run_world
from holdfast.config.sections import EnvSection
from holdfast.custom_code import process_restored
from holdfast.deploy import Agent
from holdfast.deploy.loading import load_agent_for_world
from holdfast.errors import HoldfastError, SettingsError, one_line, printable, reason_of
from holdfast.export import onnx, program
from holdfast.export.interface import FORMAT, Interface, metadata_of
from holdfast.export.proof import SUFFIX, Proof, Runnable, check_shapes, pack, prove, unpack
from holdfast.export.step import Step, prepared, refuse_custom_forward
from holdfast.export.trajectory import record
from holdfast.files import Folder, read_named, write_error
from holdfast.policies import MettaAgent, Policy
from holdfast.runs.folder import CONFIG

STEPS, SLOTS, SEED = 250, 8, 2_000_000
FEWEST_STEPS = 20
USUAL_BYTES = 2**25  # of a trajectory; with large observations or states it has fewer steps
LARGEST_FILE = 2**32
KINDS: dict[str, type[Runnable]] = {"onnx": onnx.OnnxModel, "torch": program.Program}


@dataclass(frozen=True)
class Exported:
    """A file that was written, with the proof beside it."""

    path: Path
    kind: str  # "onnx" or "torch"
    bytes: int
    interface: Interface
    proof: Proof
    checkpoint: str = ""

    @property
    def proof_path(self) -> Path:
        return proof_path(self.path)


def export_run(
    run_dir: str | Path,
    onnx_file: str | Path | None = None,
    torch_file: str | Path | None = None,
    checkpoint: str | None = None,
    env: EnvSection | None = None,
    py_agent: str | type[Policy] | None = None,
    seed: int = SEED,
) -> list[Exported]:
    """Export a run's newest usable checkpoint, or `checkpoint`, for the run's world, or for `env`.

    py_agent: FILE.py:CLASS, required if the run was trained with a custom policy class.
    """
    run_dir = Path(run_dir)
    env = load_run_world(run_dir / CONFIG) if env is None else env
    agent, settings, path = load_agent_for_world(run_dir, env, checkpoint, py_agent)
    with Folder.open(path) as folder:
        checksum = hashlib.sha256(folder.read(MANIFEST, max_bytes=MAX_MANIFEST_BYTES)).hexdigest()
    source = {
        "agent": settings.policy.agent_name,
        "run": run_dir.resolve().name,
        "checkpoint": path.name,
        "checkpoint_sha256": checksum,
    }
    return export(agent.policy, env, onnx_file, torch_file, source, seed=seed)


def export_onnx(agent: Agent | Policy | MettaAgent, path: str | Path, env: EnvSection, seed: int = SEED) -> Exported:
    """Export a policy as an ONNX model. env: the world to prove it in, such as `GymEnv(name="gym:CartPole-v1")`."""
    return export(_policy(agent), env, onnx_file=path, seed=seed)[0]


def export_torch(agent: Agent | Policy | MettaAgent, path: str | Path, env: EnvSection, seed: int = SEED) -> Exported:
    """Export a policy as a program of torch.export. env: the world to prove it in."""
    return export(_policy(agent), env, torch_file=path, seed=seed)[0]


def export(
    policy: Policy,
    env: EnvSection,
    onnx_file: str | Path | None = None,
    torch_file: str | Path | None = None,
    source: Mapping[str, str] | None = None,
    steps: int = STEPS,
    slots: int = SLOTS,
    seed: int = SEED,
) -> list[Exported]:
    """Trace the policy once, convert it, prove every file, and write the files once all proofs hold."""
    named = {"onnx": onnx_file, "torch": torch_file}
    wanted = {kind: Path(path) for kind, path in named.items() if path is not None}
    _check_paths(wanted)
    _check_policy(policy, env)
    if "onnx" in wanted:
        onnx.check_packages(to_convert=True)
    with prepared(policy):
        with process_restored():
            recorded, interface = record(policy, env, _steps_that_fit(policy, steps, slots), slots, seed)
        metadata = metadata_of(policy, interface, source or {})
        traced = program.trace(Step(policy, interface))
        datas = {}
        if "torch" in wanted:  # first, because the conversion to ONNX may change the graph
            datas["torch"] = program.save(traced, metadata)
        if "onnx" in wanted:
            datas["onnx"] = onnx.convert(traced, interface, metadata)
    written: list[tuple[Exported, bytes, bytes]] = []
    for kind, path in wanted.items():
        proof = prove(load(datas[kind], kind, str(path)), interface, recorded)
        proof.require(f"{path}: not written: the {kind} file")
        checkpoint = metadata.get("checkpoint", "")
        exported = Exported(path, kind, len(datas[kind]), interface, proof, checkpoint)
        written.append((exported, datas[kind], pack(proof, recorded, kind, datas[kind], metadata)))
    for exported, data, packed in written:
        _write(exported.path, data, packed)
    return [exported for exported, _, _ in written]


def check(path: str | Path) -> Proof:
    """Replay an exported file on the trajectory beside it and compare; raise SettingsError unless all of it agrees.

    Loading a torch.export program runs code of the file, so check only programs from people you trust.
    """
    path = Path(path)
    shown = printable(str(path), 150)
    data, beside = _read(path), proof_path(path)
    if not os.path.exists(beside):
        raise SettingsError(f"{shown}: there is no {printable(beside.name, 150)} beside it, so nothing can be checked.")
    where = printable(str(beside), 150)
    recorded, figures = unpack(_read(beside), where)
    if hashlib.sha256(data).hexdigest() != figures["file_sha256"]:
        raise SettingsError(f"{shown}: damaged or changed; it is not the file that {where} belongs to.")
    if figures["kind"] == "onnx":
        onnx.check_packages(to_convert=False)
    loaded = load(data, figures["kind"], shown)
    if loaded.metadata.get("holdfast_export") != FORMAT:
        raise SettingsError(f"{shown}: not written by `holdfast export`, or by another version of it.")
    try:
        interface = Interface.from_metadata(loaded.metadata)
        check_shapes(interface, recorded, where)
        proof = prove(loaded, interface, recorded)
    except HoldfastError:
        raise
    except Exception as error:  # metadata and trajectory of a stranger can cause any exception
        raise SettingsError(f"{shown}: cannot be replayed: {type(error).__name__}: {one_line(error, 150)}") from error
    proof.require(f"{shown}: the file")
    return proof


def load(data: bytes, kind: str, where: str) -> Runnable:
    """Load an exported file; raise SettingsError if it is not one of this kind."""
    reader = "onnxruntime" if kind == "onnx" else "torch.export"
    try:
        return KINDS[kind](data)  # type: ignore[call-arg]
    except Exception as error:
        raise SettingsError(f"{where}: {reader} cannot load it: {one_line(error, 150)}") from error


def proof_path(path: Path) -> Path:
    return path.with_name(path.name + SUFFIX)


def _partial(name: str) -> str:
    return f".{name}.partial"


def _policy(agent: Agent | Policy | MettaAgent) -> Policy:
    return agent if isinstance(agent, Policy) else agent.policy


def _check_policy(policy: Policy, env: EnvSection) -> None:
    refuse_custom_forward(policy)
    if env.num_ready:
        raise SettingsError(
            f"{env.name} is a ready object, which the proof would play and close. "
            "Name a class or function that makes environments, as in python_env(MyEnv)."
        )
    spec = env.describe()
    if (spec.obs, spec.actions) != (policy.spec.obs, policy.spec.actions):
        raise SettingsError(
            f"the policy plays {policy.spec.name}, whose observations or actions are not those of {spec.name}. "
            "Call initialize_to_world(env.describe(), learn=False) first."
        )
    if device := next((x.device for x in policy.parameters() if x.device.type != "cpu"), None):
        raise SettingsError(f"the policy is on {device}. Move it to the CPU before the export: policy.cpu().")


def _check_paths(wanted: Mapping[str, Path]) -> None:
    if not wanted:
        raise SettingsError("name a file to write: --onnx FILE or --torch FILE.")
    for kind, path in wanted.items():
        shown, folder = f"--{kind} {printable(str(path), 150)}", path.absolute().parent
        if not path.name or path.is_dir() or not folder.is_dir() or not os.access(folder, os.W_OK):
            raise SettingsError(f"{shown}: needs a file path in a folder that can be written.")
        try:
            os.lstat(path.with_name(_partial(proof_path(path).name)))
        except FileNotFoundError:
            pass
        except (OSError, ValueError) as error:
            reason = reason_of(error) if isinstance(error, OSError) else error
            raise SettingsError(f"{shown}: {reason}.") from error
    names = [os.path.abspath(name) for path in wanted.values() for name in (path, proof_path(path))]
    if len(set(names)) < len(names):
        raise SettingsError("--onnx and --torch: name two different files.")


def _steps_that_fit(policy: Policy, steps: int, slots: int) -> int:
    """Return how many steps to record, so that the proof of large observations or states stays small."""
    obs = policy.spec.obs
    obs_bytes = torch.empty(obs.shape, dtype=getattr(torch, obs.dtype), device="meta").nbytes
    state_bytes = sum(4 * layers * hidden for layers, hidden in policy.state_shapes)
    per_step = slots * (obs_bytes + state_bytes + 4 * policy.distribution.num_params)
    return max(FEWEST_STEPS, min(steps, USUAL_BYTES // per_step))


def _read(path: Path) -> bytes:
    shown = printable(str(path), 150)
    try:
        return read_named(path, LARGEST_FILE)
    except FileNotFoundError:
        raise SettingsError(f"{shown}: no such file.") from None
    except OSError as error:
        raise SettingsError(f"{shown}: cannot be read: {reason_of(error)}.") from error
    except ValueError as error:
        raise SettingsError(f"{shown}: {error}.") from error


def _write(path: Path, data: bytes, packed: bytes) -> None:
    """Write the file and its proof under other names, then rename both, the proof first: no file is without its proof."""
    contents = {proof_path(path).name: packed, path.name: data}
    partial = {name: _partial(name) for name in contents}
    try:
        with Folder.open(path.absolute().parent) as folder:
            try:
                for name, content in contents.items():
                    folder.remove(partial[name])
                    folder.write(partial[name], content)
                for name in contents:
                    folder.rename(partial[name], name)
            finally:
                for name in partial.values():
                    folder.remove(name)
            folder.sync()
    except OSError as error:
        raise write_error(path, error, len(data) + len(packed)) from error
