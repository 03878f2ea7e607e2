"""The one contract of every policy: `policy(td, state=None, action=None) -> td`.

Acting reads and writes the policy's memory. Everything else (scoring given actions, computing a value, replaying from
a given state) is a pure call: it starts from a state that travels in the TensorDict and leaves the memory alone.
Acting is T=1 and learning is T=horizon of the same code.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from tensordict import TensorDictBase
from torch import Tensor, nn

from holdfast.errors import SettingsError
from holdfast.policies.actions import Sampling, distribution_for, only_legal
from holdfast.policies.vocabulary import Adaptive, Vocabulary, action_names
from holdfast.recurrence import Memory, State
from holdfast.spec import TokenObs, WorldSpec, keys


@dataclass
class Call:
    """What one call is about, in the axes of the recurrence."""

    T: int
    B: int
    first: Tensor  # [T, B] bool
    start: State  # leaves [layers, B, hidden]
    slots: Tensor | None  # [B] when acting from memory, None in a pure call


class Policy(nn.Module):
    """Shapes, state and keys, done once for both families. Subclasses implement `unroll`."""

    head_names: tuple[str, ...] = (
        "actor",
        "critic",
    )  # parameters that start so are heads (for gradient norms)
    declared_deviations: tuple[str, ...] = ()  # what an own class does on purpose; `holdfast audit` reports it as such

    def __init__(self, spec: WorldSpec, memory_scope: str = "episode"):
        super().__init__()
        self.spec = spec
        self.memory_scope = memory_scope
        self.vocabulary = Vocabulary.of(spec)
        self.distribution = distribution_for(spec.actions)
        self.register_buffer("_unlearned", None, persistent=False)  # [A] bool, if this world has such actions
        self.sampling = Sampling()
        self._memory: Memory | None = None
        self._mask_was_used = False

    # ------------------------------------------------------------------------------- for subclasses to write

    @property
    @abstractmethod
    def state_shapes(self) -> tuple[tuple[int, int], ...]:
        """(layers, hidden) of each state leaf; () without memory."""
        raise self._unwritten("state_shapes")

    @abstractmethod
    def unroll(self, td: TensorDictBase, first: Tensor, start: State) -> tuple[Tensor, Tensor, State]:
        """Inputs td [T, B], first [T, B], start state -> distribution params [T, B, P], values [T, B], final state."""
        raise self._unwritten("unroll")

    def get_agent_experience_spec(self) -> dict[str, tuple[tuple[int, ...], str]]:
        """Keys (with shape and dtype) of the input that must be stored to score a step again.

        Rewards, dones and truncateds are always stored.
        """
        stored: dict[str, tuple[tuple[int, ...], str]] = {keys.OBS: (self.spec.obs.shape, self.spec.obs.dtype)}
        if self.spec.mask_size:
            stored[keys.ACTION_MASK] = ((self.spec.mask_size,), "bool")
        return stored

    def absorb(self, obs: Tensor) -> None:
        """Move running statistics with observations [N, ...]. Called between batches only, so that replay parity holds."""

    def _unwritten(self, name: str) -> SettingsError:
        """torch's modules can be made with abstract methods left out, so it is said when one is called."""
        return SettingsError(
            f"{type(self).__name__} does not define {name}. A Policy has to define state_shapes and unroll; "
            "an LSTMWrapper encode_observations and decode_actions."
        )

    # ------------------------------------------------------------------------------------------ the contract

    def __call__(self, td: TensorDictBase, state: State | None = None, action: Tensor | None = None) -> Any:
        """Every call passes here, so a `forward` written by hand follows the same rules.

        state: start from this and leave the memory alone. action: score it; without a state, from a blank one.
        """
        if state is None and action is not None and keys.START_STATE + "0" not in td:
            state = self.initial_state(td.batch_size[0])
        if state is not None:
            td = with_state(td, state, keys.START_STATE)
        if not self.spec.mask_size and self._unlearned is None:
            return super().__call__(td, state, action)
        self._mask_was_used = False
        out = super().__call__(td, state, action)
        if not self._mask_was_used:
            raise RuntimeError(
                f"{type(self).__name__}.forward ignored which actions of {self.spec.name} may be taken: "
                "pass the logits through self.only_legal(td, logits) before anything is drawn or scored."
            )
        return out

    def forward(self, td: TensorDictBase, state: State | None = None, action: Tensor | None = None) -> TensorDictBase:
        """td [B] or [B, T] with the keys of `spec.keys`; writes the outputs into it and returns it."""
        call = self._open(td)
        td = with_shape_keys(td, call)
        params, values, final = self.unroll(time_major(td), call.first, call.start)
        self._close(call, final)
        if params.shape[-1] != self.distribution.num_params:
            raise SettingsError(
                f"the policy gives {params.shape[-1]} numbers to choose actions by, and {self.spec.name} needs "
                f"{self.distribution.num_params}: look at what decode_actions returns first."
            )
        params = self.only_legal(time_major(td), params)
        if action is None:
            action = self.distribution.sample(params.detach(), self.sampling)  # an action is a fact, without a gradient
            td.set(keys.ACTIONS, batch_major(action, td))
        else:
            action = action.transpose(0, 1) if td.batch_dims == 2 else action.unsqueeze(0)
            td.set(keys.ENTROPY, batch_major(self.distribution.entropy(params), td))
        td.set(keys.LOG_PROB, batch_major(self.distribution.log_prob(params, action), td))
        td.set(keys.VALUES, batch_major(values, td))
        td.set(keys.FULL_LOG_PROBS, batch_major(self.distribution.full_log_probs(params), td))
        return td if call.slots is not None else with_state(td, final, keys.FINAL_STATE)

    def only_legal(self, td: TensorDictBase, params: Tensor) -> Tensor:
        """Choices that td's action mask forbids get probability 0; params [..., P] in the axes of td, or those flattened.

        So do actions that the policy has not learned, where it is only visiting.
        """
        self._mask_was_used = True
        if self._unlearned is not None:
            params = only_legal(params, ~self._unlearned)
        if not self.spec.mask_size:
            return params
        if params.dim() == td.batch_dims + 1 and params.shape[:-1] != td.batch_size:
            raise RuntimeError(
                f"only_legal got {[*params.shape]} for a td {[*td.batch_size]}: give both the same axes."
            )
        return only_legal(params, td[keys.ACTION_MASK].reshape(params.shape))

    def _open(self, td: TensorDictBase) -> Call:
        """Read episode starts and the start state: from the td in a pure call, from memory when acting."""
        B, T = td.batch_size[0], (td.batch_size[1] if td.batch_dims == 2 else 1)
        return self._open_flat(td, B, T)

    def _open_flat(self, td: TensorDictBase, B: int, T: int) -> Call:
        """The same for a td that may have been flattened to [B * T], slot-major."""
        for key in (keys.DONES, keys.TRUNCATEDS):
            if key not in td:
                raise KeyError(
                    f"the policy was called without {key!r}: it says which observations open a new episode. "
                    "Give zeros if none does."
                )
        if self.spec.mask_size and keys.ACTION_MASK not in td:
            raise KeyError(
                f"the policy was called without {keys.ACTION_MASK!r} [..., {self.spec.mask_size}]: "
                f"{self.spec.name} masks actions, and get_agent_experience_spec must list the mask to have it stored."
            )
        arrived = (td[keys.DONES] != 0) | (td[keys.TRUNCATEDS] != 0)
        first = arrived.reshape(B, T).transpose(0, 1)
        if self.memory_scope == "lifetime":
            first = torch.zeros_like(first)
        if keys.START_STATE + "0" in td or not self.state_shapes:
            return Call(T, B, first, read_state(td, len(self.state_shapes), B, T), None)
        slots = self._slots(td, B, T)
        return Call(T, B, first, self.memory.read(slots), slots)

    def _close(self, call: Call, final: State) -> None:
        """Keep the final state if the call came from memory."""
        if call.slots is not None:
            self.memory.write(call.slots, final)

    @staticmethod
    def _slots(td: TensorDictBase, B: int, T: int) -> Tensor:
        """[B] slot numbers: named one by one, or consecutive from training_env_id_start, or from 0."""
        if keys.SLOT_IDS in td:
            return td[keys.SLOT_IDS].reshape(B, T)[:, 0]
        start = int(td[keys.SLOT_START].reshape(-1)[0]) if keys.SLOT_START in td else 0
        return torch.arange(start, start + B, device=td.device)

    # ------------------------------------------------------------------------------------------------ memory

    @property
    def memory(self) -> Memory:
        """One row per slot. Made on first use, on the parameters' device."""
        if self._memory is None:
            self._memory = Memory(self.state_shapes, device=self._any_weight.device)
        return self._memory

    @property
    def _any_weight(self) -> Tensor:
        """It tells where the policy computes, and with which numbers."""
        weight = next(self.parameters(), None)
        if weight is None:
            raise SettingsError(f"{type(self).__name__} has no weights, so there is nothing to train.")
        return weight

    def initial_state(self, B: int) -> State:
        return tuple(self._any_weight.new_zeros(layers, B, hidden) for layers, hidden in self.state_shapes)

    def has_memory(self) -> bool:
        return bool(self.state_shapes)

    def get_memory(self) -> State:
        """A copy of every slot's state, one tensor [layers, slots, hidden] per leaf."""
        return self.memory.snapshot()

    def set_memory(self, memory: State) -> None:
        """Take over a copy of what `get_memory` handed out; the number of slots may differ."""
        self.memory.restore(tuple(memory))

    def reset_memory(self) -> None:
        """Every slot starts from a blank memory."""
        self.memory.reset()

    def reset_env_memory(self, env_id: int | Tensor) -> None:
        """These slots, and no others, start from a blank memory."""
        self.memory.reset(env_id)

    @contextmanager
    def set_aside(self, sampling: Sampling) -> Iterator[None]:
        """Inside, act from a blank memory of its own, draw with `sampling`, leave no unit out; then all is as it was."""
        kept, training = (self._memory, self.sampling), self.training
        self._memory, self.sampling = None, sampling
        self.eval()
        try:
            yield
        finally:
            self._memory, self.sampling = kept
            self.train(training)

    # ------------------------------------------------------------------------------------------------ worlds

    _unlearned: Tensor | None

    def initialize_to_world(self, spec: WorldSpec, learn: bool = True) -> list[str]:
        """Live in this world from now on, with everything learned so far. Returns the names that are new.

        learn: take new features and actions up, to learn them; otherwise the ones are not seen, the others not taken.
        """
        new = self.vocabulary.missing(spec)
        if not isinstance(spec.obs, TokenObs) and (spec.obs, spec.actions) != (self.spec.obs, self.spec.actions):
            raise SettingsError(
                f"a policy for {self.spec.name} cannot live in {spec.name}: only grid worlds name what they show."
            )
        found = {module.finds for module in self.modules() if isinstance(module, Adaptive)}
        other = {
            "features": spec.obs != self.spec.obs,
            "actions": action_names(spec.actions) != action_names(self.spec.actions),
        }
        lost = next((what for what, differ in other.items() if differ and what not in found), None)
        if lost is not None:
            raise SettingsError(
                f"{spec.name} has other {lost} than {self.spec.name}, and {type(self).__name__} does not find {lost} by "
                "name.\nThe agents that come with Holdfast do; docs/agents.md says how."
            )
        self._use(spec, self.vocabulary.extended(spec) if learn else self.vocabulary)
        return new

    def take_vocabulary(self, vocabulary: Vocabulary) -> None:
        """Know these names in this order, with weights for all of them (to be loaded next)."""
        self._use(self.spec, vocabulary)

    def _use(self, spec: WorldSpec, vocabulary: Vocabulary) -> None:
        names = action_names(spec.actions)
        unlearned = torch.tensor([name not in vocabulary.actions for name in names], dtype=torch.bool)
        if len(names) and unlearned.all():
            raise SettingsError(f"{spec.name} has no action this policy knows: it has {', '.join(names[:5])}.")
        parts = [module for module in self.modules() if isinstance(module, Adaptive)]
        try:
            for part in parts:
                part.adapt(spec, vocabulary)
        except SettingsError:
            for part in parts:  # one that refused leaves the others where they were
                part.adapt(self.spec, self.vocabulary)
            raise
        self.spec, self.vocabulary = spec, vocabulary
        self.distribution = distribution_for(spec.actions)
        self._unlearned = unlearned.to(self._any_weight.device) if unlearned.any() else None
        self._memory = None

    # ------------------------------------------------------------------------------------------------- parts

    def compile_around_recurrence(self) -> None:
        """torch.compile what comes before and after memory."""
        raise SettingsError(f"policy.compile=true: {type(self).__name__} does not say how to compile it.")

    def weight_scales(self) -> dict[str, tuple[float, float]]:
        """Factors on trainer.weight_clip and on trainer.l2_init for each parameter; (1, 1) where none is given."""
        return {}

    def part_of(self, parameter_name: str) -> str:
        """encoder, recurrence or heads: where a parameter belongs, for gradient norms."""
        if parameter_name.startswith("core."):
            return "recurrence"
        return "heads" if parameter_name.startswith(self.head_names) else "encoder"


# ------------------------------------------------------------------------- axes and states inside a TensorDict


def time_major(td: TensorDictBase) -> TensorDictBase:
    """[B] -> [1, B]; [B, T] -> [T, B]. Views, no copies."""
    return td.transpose(0, 1) if td.batch_dims == 2 else td.unsqueeze(0)


def batch_major(x: Tensor, td: TensorDictBase) -> Tensor:
    """[T, B, ...] back to the axes of td."""
    return x.transpose(0, 1) if td.batch_dims == 2 else x.squeeze(0)


def with_state(td: TensorDictBase, state: State, prefix: str) -> TensorDictBase:
    """Put state leaves [layers, B, hidden] into td. With a time axis they are repeated along it as a view."""
    td = td.copy()
    for i, leaf in enumerate(state):
        rows = leaf.transpose(0, 1)
        if td.batch_dims == 2:
            rows = rows.unsqueeze(1).expand(-1, td.batch_size[1], -1, -1)
        td.set(f"{prefix}{i}", rows)
    return td


def read_state(td: TensorDictBase, num_leaves: int, B: int, T: int, prefix: str = keys.START_STATE) -> State:
    """The state that `with_state` put there: leaves [layers, B, hidden]."""
    leaves = (td[f"{prefix}{i}"] for i in range(num_leaves))
    return tuple(leaf.reshape(B, T, *leaf.shape[-2:])[:, 0].transpose(0, 1) for leaf in leaves)


def with_shape_keys(td: TensorDictBase, call: Call) -> TensorDictBase:
    """`bptt` and `batch`, as components that reshape a flat batch expect them."""
    td.set(keys.BPTT, torch.full(td.batch_size, call.T, device=td.device))
    td.set(keys.BATCH, torch.full(td.batch_size, call.B, device=td.device))
    return td
