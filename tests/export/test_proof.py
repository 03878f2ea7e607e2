"""The proof finds a file that is not the policy, and a file or a proof that is not what was written."""

import dataclasses
import hashlib
import io
import json
import shutil
import zipfile
from typing import Any

import numpy as np
import pytest
import torch

from holdfast.errors import SettingsError
from holdfast.export import Proof, check, program
from holdfast.export import files as exporting
from holdfast.export.files import export
from holdfast.export.interface import Port
from holdfast.export.proof import Comparison, difference
from support.policies import REALS, VECTOR, make
from support.scripted import ScriptedEnv

FEW: dict[str, Any] = {"steps": 25, "slots": 8}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """One policy as ONNX and as a program."""
    folder = tmp_path_factory.mktemp("exported")
    export(make("box"), ScriptedEnv(spec=VECTOR), folder / "a.onnx", folder / "a.pt2", **FEW)
    return folder


@pytest.fixture
def copy(folder, tmp_path):
    """A copy of these files that a test may damage."""
    return shutil.copytree(folder, tmp_path / "copy")


def figures(path) -> dict:
    with np.load(path, allow_pickle=False) as stored:
        return json.loads(str(stored["figures"][()]))


@pytest.mark.parametrize("name", ["a.onnx", "a.pt2"])
def test_check_repeats_the_proof_anywhere(folder, copy, name):
    proof = check(copy / name)
    assert proof.actions_equal
    assert proof.holds
    assert (proof.steps, proof.slots, proof.batches) == (25, 8, (8, 7, 1))
    stored = figures(folder / f"{name}.proof.npz")
    assert stored["largest_difference"] == proof.largest_difference
    assert stored["episodes"] == proof.episodes > 8
    assert stored["file_sha256"] == hashlib.sha256((copy / name).read_bytes()).hexdigest()


def test_nothing_else_is_left_and_no_path_of_this_machine_is_inside(folder):
    assert sorted(path.name for path in folder.iterdir()) == [
        "a.onnx", "a.onnx.proof.npz", "a.pt2", "a.pt2.proof.npz",
    ]  # fmt: skip
    inside = (folder / "a.onnx").read_bytes()
    with zipfile.ZipFile(folder / "a.pt2") as archive:
        inside += b"".join(archive.read(name) for name in archive.namelist())
    assert b"site-packages" not in inside
    assert b"src/holdfast" not in inside


def test_a_long_episode_is_cut_so_that_every_slot_is_reset(tmp_path):
    env = ScriptedEnv(spec=VECTOR, end_rate=0.0)
    [exported] = export(make("box"), env, torch_file=tmp_path / "a.pt2", **FEW)
    assert exported.proof.episodes == 8 * (1 + 3)
    with np.load(exported.proof_path, allow_pickle=False) as stored:
        first = stored["inputs/first"]
    assert first[0].all()
    assert (first[1:].sum(0) == 3).all()


@pytest.mark.parametrize(("part", "size"), [("critic", 1e-3), ("core", 1e-3), ("log_std", 0.1)])
def test_a_file_that_is_not_the_policy_is_not_written(part, size, tmp_path, monkeypatch):
    policy = make("box-reals")
    trace = program.trace

    def trace_changed(step):
        name = next(name for name, _ in policy.named_parameters() if name.startswith(part))
        traced = trace(step)
        changed = policy.get_parameter(name) + size
        traced.state_dict[f"policy.{name}"] = torch.nn.Parameter(changed, requires_grad=False)
        return traced

    monkeypatch.setattr(program, "trace", trace_changed)
    with pytest.raises(SettingsError, match=r"not written: the torch file differs from the policy by .*e-0\d"):
        export(policy, ScriptedEnv(spec=REALS), torch_file=tmp_path / "a.pt2", **FEW)
    assert list(tmp_path.iterdir()) == []


def test_if_one_of_two_files_fails_neither_is_written(tmp_path, monkeypatch):
    prove = exporting.prove

    def prove_one(loaded, *args):
        proof = prove(loaded, *args)
        return dataclasses.replace(proof, other_actions=1) if isinstance(loaded, program.Program) else proof

    monkeypatch.setattr(exporting, "prove", prove_one)
    with pytest.raises(SettingsError, match="the torch file chooses another action than the policy"):
        export(make("box"), ScriptedEnv(spec=VECTOR), tmp_path / "a.onnx", tmp_path / "a.pt2", **FEW)
    assert list(tmp_path.iterdir()) == []


def test_a_full_disk_leaves_nothing(tmp_path, monkeypatch):
    def write(self, name, data):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("holdfast.files.Folder.write", write)
    with pytest.raises(Exception, match="no space left on device"):
        export(make("box"), ScriptedEnv(spec=VECTOR), torch_file=tmp_path / "a.pt2", **FEW)
    assert list(tmp_path.iterdir()) == []


class Answers:
    """A loaded file that repeats the recorded outputs, changed at one step."""

    def __init__(self, recorded, metadata, change):
        self.recorded, self.metadata, self.change, self.calls = recorded, metadata, change, 0

    def run(self, inputs):
        step, rows = self.calls % self.recorded.steps, len(inputs["first"])
        self.calls += 1
        found = {
            name: x[step].take(range(rows), 1 if name.endswith("_out") else 0)
            for name, x in self.recorded.outputs.items()
        }
        if step == 7:
            self.change(found)
        return found


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda found: None, ""),
        (lambda found: found["h_out"].__setitem__((0, 0, 0), 9.0), r"at h_out, step 7, slot 0, batch of 8"),
        (lambda found: found["value"].__setitem__(0, np.nan), r"by inf, .* at value, step 7, slot 0"),
        (lambda found: found.update(value=found["value"][:, None]), r"by inf, .* at value, step 7"),
        (lambda found: found["logits"].__iadd__(np.array([0, 1e-6], np.float32)), ""),
    ],
    ids=["same", "state", "nan", "shape", "rounding"],
)
def test_every_output_of_every_step_is_compared(folder, change, said):
    recorded, _ = exporting.unpack((folder / "a.onnx.proof.npz").read_bytes(), "")
    metadata = exporting.load((folder / "a.onnx").read_bytes(), "onnx", "").metadata
    interface = exporting.Interface.from_metadata(metadata)
    proof = exporting.prove(Answers(recorded, metadata, change), interface, recorded)
    if said:
        with pytest.raises(SettingsError, match=said):
            proof.require("it")
    else:
        proof.require("it")


def test_a_different_action_is_found_even_if_scores_agree(folder):
    recorded, _ = exporting.unpack((folder / "a.onnx.proof.npz").read_bytes(), "")
    metadata = exporting.load((folder / "a.onnx").read_bytes(), "onnx", "").metadata
    recorded.actions[7, 3] ^= 1
    proof = exporting.prove(
        Answers(recorded, metadata, lambda found: None), exporting.Interface.from_metadata(metadata), recorded
    )
    assert proof.largest_difference == 0
    assert not proof.holds
    assert (proof.actions, proof.other_actions) == (25 * (8 + 7 + 1), 2)  # slot 3 is in the batches of 8 and 7
    with pytest.raises(SettingsError, match=r"in 2 of 400 cases, first at step 7, slot 3, batch of 8"):
        proof.require("it")


def test_differences_by_hand():
    found, expected = np.array([1.0, 200.0, -1e9, np.nan, np.inf]), np.array([1.5, 100.0, -1e9, 0.0, np.inf])
    assert difference(found, expected).tolist() == [0.5 / 1.5, 1.0, 0.0, np.inf, 0.0]
    assert difference(np.array([0.25]), np.array([0.5])).tolist() == [0.25]
    assert difference(np.zeros(2), np.zeros(3)).tolist() == [np.inf] * 3
    assert Port("h_in", (2, 12), "float32", axis=1).full_shape(7) == [2, 7, 12]
    assert Proof(1, 1, 1, (1,), 9e-6, "", 1).holds
    assert not Proof(1, 1, 1, (1,), 2e-5, "", 1).holds
    assert not Proof(1, 1, 1, (1,), 0.0, "", 1, other_actions=1).holds


@pytest.mark.parametrize(("largest", "others", "said"), [(2e-5, 0, True), (2e-3, 0, False), (2e-5, 1, False)])
def test_what_may_be_rounding_is_said_to_be(largest, others, said):
    with pytest.raises(SettingsError) as caught:
        Proof(1, 1, 1, (1,), largest, "", 1, other_actions=others).require("it")
    assert ("--seed" in str(caught.value)) == said


@pytest.mark.parametrize(
    ("space", "found", "expected", "actions", "others", "lead", "largest"),
    [
        ({"kind": "DiscreteActions", "names": "abc"}, [1, 2, 0], [1, 2, 0], [1], 0, 0.0, 0.0),
        ({"kind": "DiscreteActions", "names": "abc"}, [1, 2, 0], [2.5, 2, 0], [0], 1, 0.5, 0.0),
        ({"kind": "MultiDiscreteActions", "sizes": [1, 2]}, [9, 1, 0], [9, 0, 3], [0, 1], 1, 3.0, 0.0),
        (
            {"kind": "MultiDiscreteActions", "sizes": [2, 2], "arguments": [1, 2]},
            [1, 0, 0],
            [0, 0, 2],
            [1, 1],
            1,
            2.0,
            0.0,
        ),
        ({"kind": "MixedActions", "sizes": [2]}, [0, 1], [0, 1], [1.0, 0.25], 0, 0.0, 0.25),
        ({"kind": "MixedActions", "sizes": [2]}, [0, 1], [2, 1], [0.0, 0.5], 1, 1.0, 0.0),
    ],
)
def test_actions_by_hand(space, found, expected, actions, others, lead, largest):
    compared = Comparison(space)
    ours, policys = ({"logits": np.array([x], np.float32), "mean": np.array([[0.5]])} for x in (found, expected))
    compared.add_actions(ours, policys, np.array([actions]), step=0)
    assert (compared.actions, compared.other_actions, compared.largest_lead) == (1, others, lead)
    assert compared.largest == largest


# ------------------------------------------------------------------------------------ files that are not as written


def repack(path, **changes) -> None:
    """Rewrite a proof with some of its arrays changed; None removes one."""
    with np.load(path, allow_pickle=False) as stored:
        arrays = {name: stored[name] for name in stored.files}
    arrays |= changes
    np.savez(path, **{name: x for name, x in arrays.items() if x is not None})


def flip(path, at=-1) -> None:
    data = bytearray(path.read_bytes())
    data[at] ^= 1
    path.write_bytes(data)


def trust(path, **more) -> None:
    """Make the proof name the file as it is now, as somebody who forges both would."""
    proof = path.with_name(path.name + ".proof.npz")
    known = figures(proof) | {"file_sha256": hashlib.sha256(path.read_bytes()).hexdigest()} | more
    repack(proof, figures=np.array(json.dumps(known)))


def foreign_onnx(path) -> None:
    import onnx

    value = onnx.helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, [1])
    graph = onnx.helper.make_graph([onnx.helper.make_node("Identity", ["x"], ["y"])], "g", [value], [])
    graph.output.append(onnx.helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, [1]))
    opsets = [onnx.helper.make_opsetid("", 18)]
    path.write_bytes(onnx.helper.make_model(graph, opset_imports=opsets, ir_version=9).SerializeToString())


DAMAGE = {
    "no file": (lambda p: p.unlink(), "no such file"),
    "no proof": (lambda p: p.with_name("a.onnx.proof.npz").unlink(), r"no a\.onnx\.proof\.npz beside it"),
    "bit": (flip, "damaged or changed"),
    "empty": (lambda p: p.write_bytes(b""), "damaged or changed"),
    "bit of the proof": (lambda p: flip(p.with_name("a.onnx.proof.npz"), 5000), "damaged, or not a proof"),
    "text as proof": (lambda p: p.with_name("a.onnx.proof.npz").write_text("hello"), "damaged, or not a proof"),
    "half a proof": (
        lambda p: p.with_name("a.onnx.proof.npz").write_bytes(p.with_name("a.onnx.proof.npz").read_bytes()[:3000]),
        "damaged, or not a proof",
    ),
    "pickle as proof": (
        lambda p: repack(p.with_name("a.onnx.proof.npz"), actions=np.array([{}], object)),
        "damaged, or not a proof",
    ),
    "no flags": (
        lambda p: repack(p.with_name("a.onnx.proof.npz"), **{"inputs/first": None}),
        "damaged, or not a proof",
    ),
    "no outputs": (
        lambda p: repack(p.with_name("a.onnx.proof.npz"), **{"outputs/value": None}),
        "does not belong to the inputs and outputs",
    ),
    "another type": (
        lambda p: repack(p.with_name("a.onnx.proof.npz"), **{"inputs/obs": np.zeros((25, 8, 3), np.int8)}),
        "does not belong to the inputs and outputs",
    ),
    "other actions": (
        lambda p: repack(p.with_name("a.onnx.proof.npz"), actions=np.zeros((24, 8), np.int64)),
        "its actions do not belong",
    ),
    "other values": (
        lambda p: repack(p.with_name("a.onnx.proof.npz"), **{"outputs/value": np.ones((25, 8), np.float32)}),
        r"the file differs from the policy by .* at value",
    ),
    "text": (lambda p: (p.write_text("hello"), trust(p)), "onnxruntime cannot load it"),
    "another kind": (lambda p: trust(p, kind="torch"), "torch.export cannot load it"),
    "no kind": (lambda p: trust(p, kind="pickle"), "damaged, or not a proof"),
    "foreign": (lambda p: (foreign_onnx(p), trust(p)), "not written by `holdfast export`"),
}


@pytest.mark.parametrize("damage", DAMAGE)
def test_a_damaged_or_foreign_file_is_one_clear_line(damage, copy, capfd):
    change, said = DAMAGE[damage]
    change(copy / "a.onnx")
    with pytest.raises(SettingsError, match=said) as caught:
        check(copy / "a.onnx")
    assert len(str(caught.value).splitlines()) == 1
    assert capfd.readouterr() == ("", "")


def test_a_huge_proof_is_not_unpacked(copy, monkeypatch):
    monkeypatch.setattr("holdfast.export.proof.MAX_BYTES", 2**20)
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("actions.npy", bytes(2**21))
    (copy / "a.onnx.proof.npz").write_bytes(packed.getvalue())
    with pytest.raises(SettingsError, match="but the limit is"):
        check(copy / "a.onnx")


def test_torch_threads_do_not_matter(copy):
    threads = torch.get_num_threads()
    try:
        torch.set_num_threads(2)
        assert check(copy / "a.onnx").holds
        assert check(copy / "a.pt2").holds
    finally:
        torch.set_num_threads(threads)
