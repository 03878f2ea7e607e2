"""Bugs in gradients."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from audit.mutants.reference_policy import HIDDEN, Network, ReferencePolicy
from audit.mutants.register import caught_by
from holdfast.audit.subject import Outputs, State


@caught_by("gradients_flow_through_time")
class DetachesEveryStep(ReferencePolicy):
    """The state is detached between the steps of a sequence."""

    def cell(self, x: Tensor, state: State) -> tuple[Tensor, State]:
        return super().cell(x, tuple(leaf.detach() for leaf in state))


@caught_by("gradients_flow_through_time")
class DetachesEveryOtherStep(ReferencePolicy):
    """In learning, the state is detached at every second step."""

    def sequence(self, obs: Tensor, state: State, first: Tensor, actions: Tensor | None) -> tuple[Outputs, State]:
        ys = []
        for t, (x, now) in enumerate(zip(self.encode(obs), first, strict=True)):
            if t % 2:
                state = tuple(leaf.detach() for leaf in state)
            y, state = self.advance(x, state, now)
            ys.append(y)
        assert actions is not None
        return self.scores(*self.heads(torch.stack(ys)), actions), state


@caught_by("gradients_flow_through_time")
class DetachesC(ReferencePolicy):
    """c is detached at every step; h is not."""

    def cell(self, x: Tensor, state: State) -> tuple[Tensor, State]:
        return super().cell(x, (state[0], state[1].detach()))


@caught_by("gradients_flow_through_time")
class DetachesMemoryInput(ReferencePolicy):
    """Features are detached before they enter memory, so only the current step has a gradient."""

    def advance(self, x: Tensor, state: State, first: Tensor) -> tuple[Tensor, State]:
        y, state = super().advance(x.detach(), state, first)
        return x + y, state


@caught_by("learning_has_gradients")
class LearnsWithoutGradients(ReferencePolicy):
    """Learning runs under no_grad."""

    def sequence(self, obs: Tensor, state: State, first: Tensor, actions: Tensor | None) -> tuple[Outputs, State]:
        with torch.no_grad():
            return super().sequence(obs, state, first, actions)


@caught_by("learning_has_gradients")
class DetachesLogProbs(ReferencePolicy):
    """In learning, only values have a gradient."""

    def sequence(self, obs: Tensor, state: State, first: Tensor, actions: Tensor | None) -> tuple[Outputs, State]:
        outputs, final = super().sequence(obs, state, first, actions)
        return {name: y if name == "value" else y.detach() for name, y in outputs.items()}, final


@caught_by("learning_has_gradients")
class DetachesEncoder(ReferencePolicy):
    """Features are detached, so the encoder is never trained."""

    def encode(self, obs: Tensor) -> Tensor:
        return super().encode(obs).detach()


@caught_by("gradients_flow_through_time")
class DetachesEvery16Steps(ReferencePolicy):
    """In learning, the state is detached every 16 steps."""

    def sequence(self, obs: Tensor, state: State, first: Tensor, actions: Tensor | None) -> tuple[Outputs, State]:
        assert actions is not None
        parts = []
        for chunk in zip(*(x.split(16) for x in (obs, first, actions)), strict=True):
            outputs, state = super().sequence(chunk[0], state, *chunk[1:])
            parts.append(outputs)
            state = tuple(leaf.detach() for leaf in state)
        return {name: torch.cat([part[name] for part in parts]) for name in parts[0]}, state


@caught_by("learning_has_gradients")
class DetachesActor(ReferencePolicy):
    """The actor reads a detached copy of memory, so only the critic trains memory."""

    def heads(self, y: Tensor) -> tuple[Tensor, Tensor]:
        return super().heads(y.detach())[0], super().heads(y)[1]


@caught_by("gradients_flow_through_time")
class NaNGradientsAfterStep8(ReferencePolicy):
    """Gradients are NaN from step 8 of a sequence on, because of a square root at 0."""

    def sequence(self, obs: Tensor, state: State, first: Tensor, actions: Tensor | None) -> tuple[Outputs, State]:
        if len(obs) <= 8:
            return super().sequence(obs, state, first, actions)
        assert actions is not None
        early, between = super().sequence(obs[:8], state, first[:8], actions[:8])
        between = tuple(leaf + (leaf - leaf).square().sqrt() for leaf in between)
        late, final = super().sequence(obs[8:], between, first[8:], actions[8:])
        return {name: torch.cat([early[name], late[name]]) for name in early}, final


class WithShift(Network):
    def __init__(self) -> None:
        super().__init__()
        self.shift = nn.Parameter(torch.zeros(HIDDEN))


@caught_by("learning_has_gradients")
class NaNGradientOfSquareRoot(ReferencePolicy):
    """The square root of a parameter that starts at 0 has a NaN gradient."""

    def network(self) -> Network:
        return WithShift()

    def encode(self, obs: Tensor) -> Tensor:
        return super().encode(obs) + self.module.get_parameter("shift").square().sqrt()


class Learning(ReferencePolicy):
    """Knows whether it is learning."""

    learns = False

    def sequence(self, obs: Tensor, state: State, first: Tensor, actions: Tensor | None) -> tuple[Outputs, State]:
        self.learns = True
        try:
            return super().sequence(obs, state, first, actions)
        finally:
            self.learns = False


@caught_by("sequence_gradients_equal_steps")
class ShrinksGradientsThroughTime(Learning):
    """In learning, only a tenth of the gradient reaches the previous step."""

    def reset(self, state: State, first: Tensor) -> State:
        kept = super().reset(state, first)
        return tuple(0.1 * leaf + 0.9 * leaf.detach() for leaf in kept) if self.learns else kept


@caught_by("sequence_gradients_equal_steps")
class DetachesHalfOfState(Learning):
    """In learning, half of the state is detached at every step."""

    def reset(self, state: State, first: Tensor) -> State:
        kept, half = super().reset(state, first), HIDDEN // 2
        if not self.learns:
            return kept
        return tuple(torch.cat([leaf[..., :half], leaf[..., half:].detach()], -1) for leaf in kept)


@caught_by("sequence_gradients_equal_steps")
class DetachesAtStep40(ReferencePolicy):
    """In learning, the state is detached at step 40."""

    def sequence(self, obs: Tensor, state: State, first: Tensor, actions: Tensor | None) -> tuple[Outputs, State]:
        if len(obs) <= 40:
            return super().sequence(obs, state, first, actions)
        assert actions is not None
        early, between = super().sequence(obs[:40], state, first[:40], actions[:40])
        between = tuple(leaf.detach() for leaf in between)
        late, final = super().sequence(obs[40:], between, first[40:], actions[40:])
        return {name: torch.cat([early[name], late[name]]) for name in early}, final


@caught_by("sequence_gradients_equal_steps")
class DetachesFirstObservations(ReferencePolicy):
    """In learning, the first observation of an episode is detached."""

    def sequence(self, obs: Tensor, state: State, first: Tensor, actions: Tensor | None) -> tuple[Outputs, State]:
        opens = (first != 0).unsqueeze(-1)
        return super().sequence(torch.where(opens, obs.detach(), obs), state, first, actions)


class WithOwnCell(Network):
    def __init__(self) -> None:
        super().__init__()
        self.own_cell = nn.LSTMCell(HIDDEN, HIDDEN)


@caught_by("parameters_get_gradients")
class NeverUsesItsOwnCell(ReferencePolicy):
    """An LSTM cell is assigned to an attribute that forward never uses."""

    def network(self) -> Network:
        return WithOwnCell()
