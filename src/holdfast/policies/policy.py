"""Policy, the base class of all policies: act, score actions and predict values for inputs [T, B, ...] and a state.

`act`, `score` and `predict_values` run the same `unroll`; acting is T=1, learning is T=horizon. State is an argument
and a result, so these methods do not use the policy's memory. `policy(td, state, action)` is a TensorDict interface to
them (`tensordict_api`); without a state, it reads the state from the policy's memory and writes the new state back.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

import torch
from tensordict import TensorDictBase
from torch import Tensor, nn

from holdfast.errors import SettingsError
from holdfast.policies import tensordict_api as api
from holdfast.policies.actions import Sampling, distribution_for, only_legal
from holdfast.policies.parts.previous import PreviousStep
from holdfast.policies.tensordict_api import Acted, Inputs, Scored
from holdfast.policies.vocabulary import Adaptive, Vocabulary, action_names
from holdfast.recurrence import Memory, State
from holdfast.spec import TokenObs, WorldSpec, keys

CONTRACT = ("act", "score", "predict_values", "episode_starts", "unroll")  # methods that no attribute may replace


class Policy(nn.Module):
    """Base class of plain and component policies. Subclasses implement `state_shapes` and `unroll`."""

    head_names: tuple[str, ...] = ("actor", "critic")  # prefixes of the parameters that count as heads
    declared_deviations: tuple[str, ...] = ()  # names of deviations that `holdfast audit` reports as intended
    no_gradient: tuple[int, ...] = ()  # indices of state tensors that only select or count, for `holdfast audit`
    _unlearned: Tensor | None

    def __init_subclass__(cls, **options: Any) -> None:
        """If the subclass has a custom `forward`, make `act`, `score` and `predict_values` call it."""
        super().__init_subclass__(**options)
        if cls.forward is not Policy.forward:
            for name in ("act", "score", "predict_values"):
                if getattr(cls, name) is getattr(Policy, name):
                    setattr(cls, name, getattr(api, name))

    def __init__(self, spec: WorldSpec, memory_scope: str = "episode"):
        super().__init__()
        self.spec = spec
        self.memory_scope = memory_scope
        self.vocabulary = Vocabulary.of(spec)
        self.distribution = distribution_for(spec.actions)
        self.previous_step: PreviousStep | None = None  # see `see`
        self.register_buffer("_unlearned", None, persistent=False)  # [A] bool: actions this policy was not trained on
        self.sampling = Sampling()
        self._memory: Memory | None = None
        self._mask_was_used = False

    def __setattr__(self, name: str, value: Any) -> None:
        """Refuse to replace a contract method, or to assign a module or parameter that a class attribute would hide."""
        if name in CONTRACT or (isinstance(value, nn.Module | nn.Parameter) and hasattr(type(self), name)):
            owner = next(kind for kind in type(self).__mro__ if name in vars(kind))
            own_core = f" For a custom recurrent core, write self.core = {type(value).__name__}(...) (docs/policies.md, 'Your own core')."
            raise SettingsError(
                f"{type(self).__name__} assigns a {type(value).__name__} to self.{name}, which is a method of {owner.__name__}: "
                f"one of the two would never be used. Choose another name.{own_core if name == 'lstm' else ''}"
            )
        super().__setattr__(name, value)

    # ------------------------------------------------------------------------------- for subclasses to implement

    @property
    @abstractmethod
    def state_shapes(self) -> tuple[tuple[int, int], ...]:
        """The shape (layers, hidden) of each state tensor; () if the policy has no memory."""
        raise self._not_implemented("state_shapes")

    @abstractmethod
    def unroll(self, inputs: Inputs, first: Tensor, start: State) -> tuple[Tensor, Tensor, State]:
        """Run over inputs [T, B, ...] from the state `start`; reset the state to zeros where `first` [T, B] is true.

        Return the parameters of the action distribution [T, B, P], the values [T, B] and the final state.
        """
        raise self._not_implemented("unroll")

    def get_agent_experience_spec(self) -> dict[str, tuple[tuple[int, ...], str]]:
        """Return {key: (shape, dtype)} of the inputs to store for learning, besides rewards, dones and truncateds."""
        stored: dict[str, tuple[tuple[int, ...], str]] = {keys.OBS: (self.spec.obs.shape, self.spec.obs.dtype)}
        if self.spec.mask_size:
            stored[keys.ACTION_MASK] = ((self.spec.mask_size,), "bool")
        if self.previous_step is not None and "action" in self.previous_step.sees:
            stored[keys.LAST_ACTIONS] = (self.spec.actions.shape, self.spec.actions.dtype)
        return stored

    def see(self, sees: Sequence[str]) -> None:
        """Build `previous_step`, which encodes what `policy.sees` lists. Call this before the core is built."""
        if sees:
            across_episodes = self.memory_scope == "lifetime"
            self.previous_step = PreviousStep(self.spec, self.vocabulary, sees, across_episodes)

    @property
    def num_seen(self) -> int:
        """Number of features that `policy.sees` adds to the input of the core."""
        return 0 if self.previous_step is None else self.previous_step.size

    @property
    def absorbs(self) -> bool:
        """Whether `absorb` does anything. If so, ranks exchange their observations."""
        return type(self).absorb is not Policy.absorb

    def absorb(self, obs: Tensor) -> None:
        """Update running statistics from observations [N, ...]. Called between batches, so that replay is exact."""

    def _not_implemented(self, name: str) -> SettingsError:
        """Return the error to raise when a missing method is called; torch does not check for abstract methods."""
        return SettingsError(
            f"{type(self).__name__} does not define {name}. A Policy must define state_shapes and unroll; "
            "an LSTMWrapper must define encode_observations and decode_actions."
        )

    # ------------------------------------------------------------------------------ acting and learning, [T, B]

    def act(self, inputs: Inputs, state: State) -> Acted:
        """Sample actions for inputs [T, B, ...], starting from `state`; return them with log-probs and values."""
        params, values, final = self._run(inputs, state)
        actions, log_prob = self.distribution.draw(params, self.sampling)
        return Acted(actions, log_prob, values, final, params)

    def score(self, inputs: Inputs, state: State, actions: Tensor) -> Scored:
        """Replay inputs [T, B, ...] from `state`; return log-probs of `actions` [T, B, ...], entropies and values."""
        params, values, final = self._run(inputs, state)
        log_prob, entropy = self.distribution.score(params, actions)
        return Scored(log_prob, entropy, values, final, params)

    @torch.no_grad()
    def predict_values(self, inputs: Inputs, state: State) -> Tensor:
        """Return the values [T, B] of inputs [T, B, ...], starting from `state`."""
        return self._run(inputs, state)[1]

    def _run(self, inputs: Inputs, state: State) -> tuple[Tensor, Tensor, State]:
        """Call `unroll` with the episode starts given by the inputs, then mask illegal actions."""
        params, values, final = self.unroll(inputs, self.episode_starts(inputs), state)
        if params.shape[-1] != self.distribution.num_params:
            raise SettingsError(
                f"the policy outputs {params.shape[-1]} action scores, but {self.spec.name} needs "
                f"{self.distribution.num_params}: check the first result of decode_actions."
            )
        if self._unlearned is not None:
            params = only_legal(params, ~self._unlearned)
        if self.spec.mask_size:
            params = only_legal(params, inputs[keys.ACTION_MASK])
        return params, values, final

    def episode_starts(self, inputs: Inputs) -> Tensor:
        """Return flags [T, B], true for the first observation of an episode; all false for memory_scope "lifetime"."""
        ended = inputs[keys.DONES].bool() | inputs[keys.TRUNCATEDS].bool()
        return torch.zeros_like(ended) if self.memory_scope == "lifetime" else ended

    # --------------------------------------------------------------------------------- the TensorDict interface

    def __call__(self, td: TensorDictBase, state: State | None = None, action: Tensor | None = None) -> Any:
        """Run `forward` (default or custom) on td [B] or [B, T].

        state: the start state. If given, the memory is neither read nor written.
        action: actions to score, instead of sampling. Without a state here or in td, scoring starts from zeros.
        """
        if state is None and action is not None and keys.START_STATE + "0" not in td:
            state = self.initial_state(td.batch_size[0])
        if state is not None:
            td = api.with_state(td, state, keys.START_STATE)
        self._mask_was_used = False
        out = super().__call__(td, state, action)
        has_illegal_actions = self.spec.mask_size or self._unlearned is not None
        if has_illegal_actions and not self._mask_was_used:
            raise RuntimeError(
                f"{type(self).__name__}.forward ignored the action mask of {self.spec.name}: "
                "pass the logits through self.only_legal(td, logits) before sampling or scoring."
            )
        return out

    def forward(self, td: TensorDictBase, state: State | None = None, action: Tensor | None = None) -> TensorDictBase:
        """Read the inputs in td [B] or [B, T], write the outputs into td and return td. `spec.keys` lists the keys."""
        self._mask_was_used = True
        if type(self).forward is Policy.forward:
            return api.forward(self, td, action, self.act, self.score)
        return api.forward(self, td, action, partial(Policy.act, self), partial(Policy.score, self))

    def only_legal(self, td: TensorDictBase, params: Tensor) -> Tensor:
        """In a custom `forward`, give illegal actions probability 0. params: logits [..., P], with td's axes or flat.

        In a world that the policy was not trained in, actions that it has not learned are masked as well.
        """
        self._mask_was_used = True
        if self._unlearned is not None:
            params = only_legal(params, ~self._unlearned)
        if not self.spec.mask_size:
            return params
        if params.dim() == td.batch_dims + 1 and params.shape[:-1] != td.batch_size:
            raise RuntimeError(
                f"only_legal: the logits {[*params.shape]} must have the axes of td {[*td.batch_size]}; transpose them."
            )
        return only_legal(params, td[keys.ACTION_MASK].reshape(*params.shape[:-1], -1))

    # ------------------------------------------------------------------------------------------------ memory

    @property
    def memory(self) -> Memory:
        """The state of every slot, created on first use, on the device of the parameters."""
        if self._memory is None:
            self._memory = Memory(self.state_shapes, device=self._any_weight.device)
        return self._memory

    @property
    def _any_weight(self) -> Tensor:
        """Return any parameter, to read its device and dtype."""
        weight = next(self.parameters(), None)
        if weight is None:
            raise SettingsError(f"{type(self).__name__} has no parameters, so there is nothing to train.")
        return weight

    def initial_state(self, B: int) -> State:
        return tuple(self._any_weight.new_zeros(layers, B, hidden) for layers, hidden in self.state_shapes)

    def has_memory(self) -> bool:
        return bool(self.state_shapes)

    def get_memory(self) -> State:
        """A copy of every slot's state, one tensor [layers, slots, hidden] per leaf."""
        return self.memory.snapshot()

    def set_memory(self, memory: State) -> None:
        """Restore the states that `get_memory` returned; the number of slots may differ from the current one."""
        self.memory.restore(tuple(memory))

    def reset_memory(self) -> None:
        """Clear the memory of every slot."""
        self.memory.reset()

    def reset_env_memory(self, env_id: int | Tensor) -> None:
        """Clear the memory of these slots only."""
        self.memory.reset(env_id)

    @contextmanager
    def set_aside(self, sampling: Sampling) -> Iterator[None]:
        """Context manager: inside, use new memory, `sampling` and eval mode; afterwards, restore the old ones."""
        kept, training = (self._memory, self.sampling), self.training
        self._memory, self.sampling = None, sampling
        self.eval()
        try:
            yield
        finally:
            self._memory, self.sampling = kept
            self.train(training)

    # ------------------------------------------------------------------------------------------------ worlds

    def initialize_to_world(self, spec: WorldSpec, learn: bool = True) -> list[str]:
        """Move the policy to another world and keep its weights. Return the features and actions new to the policy.

        learn: if true, add weights for the new names; if false, ignore new features and never take new actions.
        """
        new = self.vocabulary.missing(spec)
        if not isinstance(spec.obs, TokenObs) and (spec.obs, spec.actions) != (self.spec.obs, self.spec.actions):
            raise SettingsError(
                f"a policy trained on {self.spec.name} cannot run in {spec.name}, because their observation or "
                "action spaces differ. Train a new policy."
            )
        found = {module.finds for module in self.modules() if isinstance(module, Adaptive)}
        differs = {
            "features": spec.obs != self.spec.obs,
            "actions": action_names(spec.actions) != action_names(self.spec.actions),
        }
        lost = next((what for what, differ in differs.items() if differ and what not in found), None)
        if lost is not None:
            raise SettingsError(
                f"{spec.name} has other {lost} than {self.spec.name}, and {type(self).__name__} does not look up "
                f"{lost} by name.\nHoldfast's grid agents do: see docs/agents.md."
            )
        self._use(spec, self.vocabulary.extended(spec) if learn else self.vocabulary)
        return new

    def take_vocabulary(self, vocabulary: Vocabulary) -> None:
        """Resize the weights that have one row per name, with rows in this order; the caller loads them next."""
        self._use(self.spec, vocabulary)

    def _use(self, spec: WorldSpec, vocabulary: Vocabulary) -> None:
        names = action_names(spec.actions)
        unlearned = torch.tensor([name not in vocabulary.actions for name in names], dtype=torch.bool)
        if len(names) and unlearned.all():
            raise SettingsError(
                f"the policy knows none of the actions of {spec.name} ({', '.join(names[:5])}). Train a new policy."
            )
        parts = [module for module in self.modules() if isinstance(module, Adaptive)]
        try:
            for part in parts:
                part.adapt(spec, vocabulary)
        except SettingsError:
            for part in parts:  # revert the parts that have already adapted
                part.adapt(self.spec, self.vocabulary)
            raise
        self.spec, self.vocabulary = spec, vocabulary
        self.distribution = distribution_for(spec.actions)
        self._unlearned = unlearned.to(self._any_weight.device) if unlearned.any() else None
        self._memory = None

    # ------------------------------------------------------------------------------------------------- parts

    def compile_around_recurrence(self) -> None:
        """Apply torch.compile to the layers before and after the recurrent core."""
        raise SettingsError(
            f"policy.compile=true: {type(self).__name__} does not implement compile_around_recurrence(). "
            "Implement it, or remove policy.compile."
        )

    def weight_scales(self) -> dict[str, tuple[float, float]]:
        """Return {parameter name: (factor on trainer.weight_clip, factor on trainer.l2_init)}. Default: (1, 1)."""
        return {}

    def part_of(self, parameter_name: str) -> str:
        """Return "encoder", "recurrence" or "heads", the group in which the parameter's gradient norm is reported."""
        if parameter_name.startswith("core."):
            return "recurrence"
        return "heads" if parameter_name.startswith(self.head_names) else "encoder"
