"""Adapter for rsl_rl's recurrent models: an actor and a critic, each an RNNModel."""

from __future__ import annotations

from typing import Any

import torch
from tensordict import TensorDict
from torch import Tensor, nn
from torch.nn.utils.rnn import pad_sequence

from holdfast.audit.adapters.common import SampledSubject, Sampler, slot_major
from holdfast.audit.subject import ACTIONS, Outputs, State, copy_state, source_location
from holdfast.errors import SettingsError


class RslRlModels(SampledSubject):
    """The actor and the critic of rsl_rl's PPO, both recurrent, with one group of observations.

        def subject():
            return RslRlModels(runner.alg.actor, runner.alg.critic)

    Run `holdfast audit mine.py:subject`. The models keep their own state; the adapter puts it in before each step, resets
    it with the models' `reset(dones)` and takes it out afterwards. Learning gets one padded sequence per episode with a mask
    and a start state, as from rsl_rl's rollout storage; the adapter does the padding itself. Observations are normal noise
    of the actor's size, or what a function observations(N, generator) returns.
    """

    fixed_flag_dtype = "the adapter passes booleans, as rsl_rl's environments do"

    def __init__(self, actor: Any, critic: Any, observations: Sampler | None = None, name: str = ""):
        groups = {group for model in (actor, critic) for group in model.obs_groups}
        if not (actor.is_recurrent and critic.is_recurrent and len(groups) == 1):
            raise SettingsError(
                "RslRlModels needs a recurrent actor and a recurrent critic that read the same group of observations. "
                "Use StepFunction for other models."
            )
        super().__init__((actor.obs_dim,), observations)
        self.models, self._group = (actor, critic), groups.pop()
        self.module = nn.ModuleList(self.models)
        self.name = name or type(actor).__name__

    def initial_state(self, B: int) -> State:
        rnns = [model.rnn.rnn for model in self.models for _ in range(num_tensors(model))]
        return tuple(torch.zeros(rnn.num_layers, B, rnn.hidden_size) for rnn in rnns)

    def step(self, obs: Tensor, state: State, first: Tensor) -> tuple[Outputs, State]:
        for model, leaves in zip(self.models, self._by_model(copy_state(state)), strict=True):
            model.reset(hidden_state=leaves)
            model.reset(first)
        outputs = self._run(obs, [{}, {}], first.shape)
        states = [model.get_hidden_state() for model in self.models]
        return outputs, tuple(leaf for held in states for leaf in (held if isinstance(held, tuple) else (held,)))

    def sequence(self, obs: Tensor, state: State, first: Tensor, actions: Tensor | None) -> tuple[Outputs, State]:
        T, B = first.shape
        starts = torch.cat([torch.ones_like(first[:1]), first[1:]])
        begins = slot_major(starts).nonzero().flatten()  # one sequence per episode, slot after slot
        slots = begins // T
        lengths = torch.diff(begins, append=torch.tensor([T * B]))
        parts = slot_major(obs).split(lengths.tolist())
        padded = pad_sequence([*parts, obs[:, 0]])[:, :-1]  # to T steps, even if no episode is that long
        carried = (begins % T == 0) & ~first[0, slots]  # other episodes start from zeros
        states = self._by_model(tuple(leaf[:, slots] * carried.view(1, -1, 1) for leaf in state))
        masks = torch.arange(T).unsqueeze(1) < lengths
        options = [{"masks": masks, "hidden_state": leaves} for leaves in states]
        outputs = self._run(padded, options, first.shape, actions)
        return {name: y for name, y in outputs.items() if name != ACTIONS}, ()

    def where(self, method: str) -> str:
        return source_location(type(self.models[0]).get_latent)

    def _by_model(self, state: State) -> list[Any]:
        """Split a state into those of actor and critic, as the models take them: (h, c) of an LSTM, h of a GRU."""
        count = num_tensors(self.models[0])
        return [leaves if len(leaves) == 2 else leaves[0] for leaves in (state[:count], state[count:])]

    def _run(
        self, obs: Tensor, options: list[dict[str, Any]], shape: torch.Size, actions: Tensor | None = None
    ) -> Outputs:
        """Call both models on obs. Outputs have the leading axes `shape`; given actions are scored."""
        actor, critic = self.models
        groups = TensorDict({self._group: obs}, batch_size=obs.shape[:-1])
        drawn = actor(groups, **options[0], stochastic_output=True)
        log_prob = actor.get_output_log_prob(drawn if actions is None else actions)
        value = critic(groups, **options[1])
        scores = {"log_prob": log_prob, "entropy": actor.output_entropy, "value": value}
        outputs = {name: y.reshape(shape) for name, y in scores.items()}
        outputs["distribution"] = torch.cat(actor.output_distribution_params, -1).reshape(*shape, -1)
        return {ACTIONS: drawn, **outputs}


def num_tensors(model: Any) -> int:
    """Return the number of tensors in the state of a model."""
    return 2 if isinstance(model.rnn.rnn, nn.LSTM) else 1
