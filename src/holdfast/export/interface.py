"""What goes into an exported step and comes out of it: names, shapes and metadata."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from torch import Tensor

import holdfast
from holdfast.policies import Policy
from holdfast.policies.vocabulary import action_names
from holdfast.spec import BoxActions, MixedActions, keys

FORMAT = "1"
BATCH = "batch"
STATE_NAMES = ("h", "c")  # of the first state tensors, as Isaac Lab and rsl_rl call them; further ones are numbered
OF_POLICY = {
    "obs": keys.OBS,
    "action_mask": keys.ACTION_MASK,
    "last_action": keys.LAST_ACTIONS,
    "last_reward": keys.REWARDS,
}


@dataclass(frozen=True)
class Port:
    """One input or output: the shape for a batch of `batch` rows has the number of rows at `axis`."""

    name: str
    shape: tuple[int, ...]  # without the batch axis
    dtype: str
    axis: int = 0

    def full_shape(self, batch: Any = BATCH) -> list[Any]:
        return [*self.shape[: self.axis], batch, *self.shape[self.axis :]]

    def __str__(self) -> str:
        return f"{self.name} [{', '.join(map(str, self.full_shape()))}] {self.dtype}"


@dataclass(frozen=True)
class Interface:
    """The inputs and outputs of an exported step, in order. The state comes in and goes out with the same shapes."""

    inputs: tuple[Port, ...]
    outputs: tuple[Port, ...]

    @staticmethod
    def of(policy: Policy, reads: frozenset[str]) -> Interface:
        """reads: the keys of `spec.keys` that the policy reads, besides the flags of episode starts."""
        obs, actions = policy.spec.obs, policy.spec.actions
        before, after = state_ports(policy, "in"), state_ports(policy, "out")
        inputs = [Port("obs", obs.shape, obs.dtype), *before, Port("first", (), "bool")]
        if policy.spec.mask_size:
            inputs.append(Port("action_mask", (policy.spec.mask_size,), "bool"))
        if keys.LAST_ACTIONS in reads:
            inputs.append(Port("last_action", actions.shape, actions.dtype))
        if keys.REWARDS in reads:
            inputs.append(Port("last_reward", (), "float32"))
        scores = [Port(name, (size,), "float32") for name, size in score_sizes(policy).items()]
        return Interface(tuple(inputs), (*scores, Port("value", (), "float32"), *after))

    @property
    def state_inputs(self) -> tuple[Port, ...]:
        return tuple(port for port in self.inputs if port.name.endswith("_in"))

    @property
    def state_outputs(self) -> tuple[Port, ...]:
        return tuple(port for port in self.outputs if port.name.endswith("_out"))

    @staticmethod
    def from_metadata(metadata: Mapping[str, str]) -> Interface:
        """Read the interface that `metadata` stored; raise ValueError, KeyError or TypeError if there is none."""
        ports: dict[str, tuple[Port, ...]] = {}
        for side in ("inputs", "outputs"):
            found = []
            for name, entry in json.loads(metadata[side]).items():
                shape, dtype = list(entry["shape"]), entry["dtype"]
                axis = shape.index(BATCH)
                del shape[axis]
                np.dtype(dtype)
                found.append(Port(str(name), tuple(int(size) for size in shape), dtype, axis))
            ports[side] = tuple(found)
        return Interface(**ports)


def state_ports(policy: Policy, direction: str) -> tuple[Port, ...]:
    names = [*STATE_NAMES, *(f"state_{i}" for i in range(len(STATE_NAMES), len(policy.state_shapes)))]
    shapes = zip(names, policy.state_shapes, strict=False)
    return tuple(Port(f"{name}_{direction}", shape, "float32", axis=1) for name, shape in shapes)


def score_sizes(policy: Policy) -> dict[str, int]:
    """Return the sizes of the parts of the action scores, by name and in order."""
    actions = policy.spec.actions
    num_reals = len(actions.low) if isinstance(actions, BoxActions | MixedActions) else 0
    num_logits = policy.distribution.num_params - 2 * num_reals
    sizes = {"logits": num_logits, "mean": num_reals, "log_std": num_reals}
    return {name: size for name, size in sizes.items() if size}


def split_scores(policy: Policy, params: Tensor) -> dict[str, Tensor]:
    """Return the parts of the action scores `params` [..., P] by name."""
    sizes = score_sizes(policy)
    return dict(zip(sizes, params.split(list(sizes.values()), -1), strict=True))


def greedy_actions(actions: Mapping[str, Any], outputs: Mapping[str, np.ndarray]) -> np.ndarray:
    """Return the most probable actions [..., *action shape] for outputs [..., P], as a user of the file computes them.

    actions: the metadata `action_space`. Uses NumPy only, and none of the policy's code.
    """
    kind, parts = actions["kind"], []
    if kind != "BoxActions":
        ends = np.cumsum(choice_sizes(actions))[:-1]
        chosen = [part.argmax(-1) for part in np.split(outputs["logits"], ends, axis=-1)]
        if kind == "DiscreteActions":
            return chosen[0]
        if arguments := actions.get("arguments"):
            return np.array([(kind, i) for kind, count in enumerate(arguments) for i in range(count)])[chosen[0]]
        if kind == "MultiDiscreteActions":
            return np.stack(chosen, -1)
        parts = [part[..., None].astype(np.float32) for part in chosen]
    return np.concatenate([*parts, outputs["mean"]], -1)


def choice_sizes(actions: Mapping[str, Any]) -> list[int]:
    """Return how many logits each choice has; (type, argument) pairs are one choice. actions: as in `greedy_actions`."""
    if actions["kind"] == "DiscreteActions":
        return [len(actions["names"])]
    return [sum(actions["arguments"])] if actions.get("arguments") else list(actions["sizes"])


def num_choices(actions: Mapping[str, Any]) -> int | None:
    """Return how many of the entries of an action are choices; None: all of them. actions: as in `greedy_actions`."""
    match actions["kind"]:
        case "BoxActions":
            return 0
        case "MixedActions":
            return len(actions["sizes"])
    return None


def metadata_of(policy: Policy, interface: Interface, source: Mapping[str, str]) -> dict[str, str]:
    """Return the metadata of an exported file: texts, most of them JSON. source: where the weights are from."""
    spec = policy.spec.to_json()
    ports = {
        side: {port.name: {"shape": port.full_shape(), "dtype": port.dtype} for port in getattr(interface, side)}
        for side in ("inputs", "outputs")
    }
    return {
        "holdfast_export": FORMAT,
        "holdfast_version": holdfast.__version__,
        "world": policy.spec.name,
        "observation_space": json.dumps(spec["obs"]),
        "action_space": json.dumps(spec["actions"]),
        "environment_spaces": policy.spec.spaces,  # of Gymnasium, with the names of entries; "" in MettaGrid
        "action_names": json.dumps(action_names(policy.spec.actions)),
        "memory_scope": policy.memory_scope,
        "inputs": json.dumps(ports["inputs"]),
        "outputs": json.dumps(ports["outputs"]),
        **source,
    }
