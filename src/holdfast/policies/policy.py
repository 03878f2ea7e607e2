"""Policy: acting, scoring and valuing as functions of inputs and state, over [time, slots].

`act`, `score` and `predict_values` run the same `unroll`; acting is T=1, learning is T=horizon. State is an argument and a
result, so none of them touches memory. `policy(td, state, action)` is the TensorDict interface over them (`tensordict_api`);
called without a state it acts from the policy's memory and keeps the new state there.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import torch
from tensordict import TensorDictBase
from torch import Tensor, nn

from holdfast.errors import SettingsError
from holdfast.policies import tensordict_api as api
from holdfast.policies.actions import Sampling, distribution_for, only_legal
from holdfast.policies.tensordict_api import Acted, Inputs, Scored
from holdfast.policies.vocabulary import Adaptive, Vocabulary, action_names
from holdfast.recurrence import Memory, State
from holdfast.spec import TokenObs, WorldSpec, keys

CONTRACT = ("act", "score", "predict_values", "episode_starts", "unroll")  # methods that no attribute may replace


class Policy(nn.Module):
    """Base class of both families. Subclasses implement `state_shapes` and `unroll`."""

    head_names: tuple[str, ...] = ("actor", "critic")  # prefixes of the parameters that count as heads
    declared_deviations: tuple[str, ...] = ()  # intended deviations, reported as such by `holdfast audit`
    _unlearned: Tensor | None

    def __init_subclass__(cls, **options: Any) -> None:
        """Let `act`, `score` and `predict_values` of a class with a custom `forward` run through it."""
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
        self.register_buffer("_unlearned", None, persistent=False)  # [A] bool: actions this policy was not trained on
        self.sampling = Sampling()
        self._memory: Memory | None = None
        self._mask_was_used = False

    def __setattr__(self, name: str, value: Any) -> None:
        """Refuse modules and parameters under a name the class uses, which Python would never find, and new contract methods."""
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
        """(layers, hidden) of each state leaf; () without memory."""
        raise self._not_implemented("state_shapes")

    @abstractmethod
    def unroll(self, inputs: Inputs, first: Tensor, start: State) -> tuple[Tensor, Tensor, State]:
        """Inputs [T, B, ...], first [T, B], start state -> distribution params [T, B, P], values [T, B], final state."""
        raise self._not_implemented("unroll")

    def get_agent_experience_spec(self) -> dict[str, tuple[tuple[int, ...], str]]:
        """Input keys (shape, dtype) to store for learning. Rewards, dones and truncateds are always stored."""
        stored: dict[str, tuple[tuple[int, ...], str]] = {keys.OBS: (self.spec.obs.shape, self.spec.obs.dtype)}
        if self.spec.mask_size:
            stored[keys.ACTION_MASK] = ((self.spec.mask_size,), "bool")
        return stored

    def absorb(self, obs: Tensor) -> None:
        """Update running statistics with observations [N, ...]. Called only between batches, which keeps replay parity."""

    def _not_implemented(self, name: str) -> SettingsError:
        """torch modules can be instantiated with abstract methods missing, so raise when one is called."""
        return SettingsError(
            f"{type(self).__name__} does not define {name}. A Policy must define state_shapes and unroll; "
            "an LSTMWrapper must define encode_observations and decode_actions."
        )

    # ------------------------------------------------------------------------------ acting and learning, [T, B]

    def act(self, inputs: Inputs, state: State) -> Acted:
        """Sample actions, with their log-probs and values."""
        params, values, final = self._run(inputs, state)
        actions, log_prob = self.distribution.draw(params, self.sampling)
        return Acted(actions, log_prob, values, final, params)

    def score(self, inputs: Inputs, state: State, actions: Tensor) -> Scored:
        """Log-probs, entropies and values of given actions [T, B, ...], replayed from a state."""
        params, values, final = self._run(inputs, state)
        log_prob, entropy = self.distribution.score(params, actions)
        return Scored(log_prob, entropy, values, final, params)

    @torch.no_grad()
    def predict_values(self, inputs: Inputs, state: State) -> Tensor:
        """Values [T, B]."""
        return self._run(inputs, state)[1]

    def _run(self, inputs: Inputs, state: State) -> tuple[Tensor, Tensor, State]:
        """`unroll` with the episode starts of the inputs, illegal actions masked."""
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
        """first [T, B]: the observations that open a new episode. None do with memory_scope "lifetime"."""
        ended = inputs[keys.DONES].bool() | inputs[keys.TRUNCATEDS].bool()
        return torch.zeros_like(ended) if self.memory_scope == "lifetime" else ended

    # --------------------------------------------------------------------------------- the TensorDict interface

    def __call__(self, td: TensorDictBase, state: State | None = None, action: Tensor | None = None) -> Any:
        """Prepare the TensorDict for `forward`, whether it is the default one or a custom one.

        state: if given, start from it, and neither read nor write the memory. action: if given, score it instead of sampling; if
        no state is given either, start from zeros.
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
        """td [B] or [B, T] with the keys of `spec.keys`; writes the outputs into it and returns it."""
        self._mask_was_used = True
        if type(self).forward is Policy.forward:
            return api.forward(self, td, action, self.act, self.score)
        return api.forward(self, td, action, partial(Policy.act, self), partial(Policy.score, self))

    def only_legal(self, td: TensorDictBase, params: Tensor) -> Tensor:
        """Give illegal actions probability 0, in a custom `forward`. params [..., P] have td's axes, or are flattened.

        Actions that the policy was not trained on, because it is evaluated in another world, are masked as well.
        """
        self._mask_was_used = True
        if self._unlearned is not None:
            params = only_legal(params, ~self._unlearned)
        if not self.spec.mask_size:
            return params
        if params.dim() == td.batch_dims + 1 and params.shape[:-1] != td.batch_size:
            raise RuntimeError(f"only_legal: params {[*params.shape]} and td {[*td.batch_size]} need the same axes.")
        return only_legal(params, td[keys.ACTION_MASK].reshape(params.shape))

    # ------------------------------------------------------------------------------------------------ memory

    @property
    def memory(self) -> Memory:
        """One row per slot, created on first use on the parameters' device."""
        if self._memory is None:
            self._memory = Memory(self.state_shapes, device=self._any_weight.device)
        return self._memory

    @property
    def _any_weight(self) -> Tensor:
        """A parameter, for its device and dtype."""
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
        """Restore a copy of what `get_memory` returned; the number of slots may differ."""
        self.memory.restore(tuple(memory))

    def reset_memory(self) -> None:
        """Clear every slot."""
        self.memory.reset()

    def reset_env_memory(self, env_id: int | Tensor) -> None:
        """Clear these slots only."""
        self.memory.reset(env_id)

    @contextmanager
    def set_aside(self, sampling: Sampling) -> Iterator[None]:
        """Inside: blank memory, other sampling, eval mode. Afterwards everything is restored."""
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
        """Move to another world with everything learned so far. Returns the names of its new features and actions.

        learn: add weights for the new names; otherwise new features are ignored and new actions never taken.
        """
        new = self.vocabulary.missing(spec)
        if not isinstance(spec.obs, TokenObs) and (spec.obs, spec.actions) != (self.spec.obs, self.spec.actions):
            raise SettingsError(
                f"a policy trained on {self.spec.name} cannot run in {spec.name}: only grid worlds name their features."
            )
        found = {module.finds for module in self.modules() if isinstance(module, Adaptive)}
        differs = {
            "features": spec.obs != self.spec.obs,
            "actions": action_names(spec.actions) != action_names(self.spec.actions),
        }
        lost = next((what for what, differ in differs.items() if differ and what not in found), None)
        if lost is not None:
            raise SettingsError(
                f"{spec.name} has other {lost} than {self.spec.name}, and {type(self).__name__} does not look {lost} up by "
                "name.\nThe agents that ship with Holdfast do: see docs/agents.md."
            )
        self._use(spec, self.vocabulary.extended(spec) if learn else self.vocabulary)
        return new

    def take_vocabulary(self, vocabulary: Vocabulary) -> None:
        """Allocate weights for these names in this order; the caller loads them next."""
        self._use(self.spec, vocabulary)

    def _use(self, spec: WorldSpec, vocabulary: Vocabulary) -> None:
        names = action_names(spec.actions)
        unlearned = torch.tensor([name not in vocabulary.actions for name in names], dtype=torch.bool)
        if len(names) and unlearned.all():
            raise SettingsError(
                f"the policy was trained on other actions: it has none of those of {spec.name} ({', '.join(names[:5])})."
            )
        parts = [module for module in self.modules() if isinstance(module, Adaptive)]
        try:
            for part in parts:
                part.adapt(spec, vocabulary)
        except SettingsError:
            for part in parts:  # undo the parts that had adapted
                part.adapt(self.spec, self.vocabulary)
            raise
        self.spec, self.vocabulary = spec, vocabulary
        self.distribution = distribution_for(spec.actions)
        self._unlearned = unlearned.to(self._any_weight.device) if unlearned.any() else None
        self._memory = None

    # ------------------------------------------------------------------------------------------------- parts

    def compile_around_recurrence(self) -> None:
        """torch.compile the layers before and after the recurrent core."""
        raise SettingsError(f"policy.compile=true: {type(self).__name__} does not implement compile_around_recurrence.")

    def weight_scales(self) -> dict[str, tuple[float, float]]:
        """Per-parameter factors on trainer.weight_clip and trainer.l2_init; (1, 1) where not given."""
        return {}

    def part_of(self, parameter_name: str) -> str:
        """encoder, recurrence or heads: the group a parameter's gradient norm is reported under."""
        if parameter_name.startswith("core."):
            return "recurrence"
        return "heads" if parameter_name.startswith(self.head_names) else "encoder"
