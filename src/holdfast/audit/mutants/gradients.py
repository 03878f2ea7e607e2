"""Learning without gradients, or with some that are no numbers."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from holdfast.audit.mutants.register import caught_by
from holdfast.audit.mutants.sound import HIDDEN, Network, Sound
from holdfast.audit.subject import Outputs, State


@caught_by("gradients_flow_within_an_episode")
class DetachesEveryStep(Sound):
    """The state is detached between the steps of a sequence."""

    def cell(self, x: Tensor, state: State) -> tuple[Tensor, State]:
        return super().cell(x, tuple(leaf.detach() for leaf in state))


@caught_by("gradients_flow_within_an_episode")
class DetachesEveryOtherStep(Sound):
    """While learning, the state is detached at every second step."""

    def sequence(self, obs: Tensor, state: State, first: Tensor, actions: Tensor | None) -> tuple[Outputs, State]:
        ys = []
        for t, (x, now) in enumerate(zip(self.encode(obs), first, strict=True)):
            if t % 2:
                state = tuple(leaf.detach() for leaf in state)
            y, state = self.advance(x, state, now)
            ys.append(y)
        assert actions is not None
        return self.scores(*self.heads(torch.stack(ys)), actions), state


@caught_by("gradients_flow_within_an_episode")
class DetachesC(Sound):
    """h has a gradient, c has none."""

    def cell(self, x: Tensor, state: State) -> tuple[Tensor, State]:
        return super().cell(x, (state[0], state[1].detach()))


@caught_by("gradients_flow_within_an_episode")
class RemembersWithoutGradient(Sound):
    """What is seen is acted on with a gradient, and written to memory without one."""

    def advance(self, x: Tensor, state: State, first: Tensor) -> tuple[Tensor, State]:
        y, state = super().advance(x.detach(), state, first)
        return x + y, state


@caught_by("learning_has_gradients")
class LearnsWithoutGradients(Sound):
    """Learning runs under no_grad, as acting does."""

    def sequence(self, obs: Tensor, state: State, first: Tensor, actions: Tensor | None) -> tuple[Outputs, State]:
        with torch.no_grad():
            return super().sequence(obs, state, first, actions)


@caught_by("learning_has_gradients")
class DetachesLogProbs(Sound):
    """Only values have a gradient while learning."""

    def sequence(self, obs: Tensor, state: State, first: Tensor, actions: Tensor | None) -> tuple[Outputs, State]:
        outputs, final = super().sequence(obs, state, first, actions)
        return {name: y if name == "value" else y.detach() for name, y in outputs.items()}, final


@caught_by("learning_has_gradients")
class DetachesTheEncoder(Sound):
    """Features are detached, so how to read observations is never learned."""

    def encode(self, obs: Tensor) -> Tensor:
        return super().encode(obs).detach()


@caught_by("gradients_flow_within_an_episode")
class DetachesChunks(Sound):
    """While learning, the state is detached after every 16 steps."""

    def sequence(self, obs: Tensor, state: State, first: Tensor, actions: Tensor | None) -> tuple[Outputs, State]:
        assert actions is not None
        parts = []
        for chunk in zip(*(x.split(16) for x in (obs, first, actions)), strict=True):
            outputs, state = super().sequence(chunk[0], state, *chunk[1:])
            parts.append(outputs)
            state = tuple(leaf.detach() for leaf in state)
        return {name: torch.cat([part[name] for part in parts]) for name in parts[0]}, state


@caught_by("learning_has_gradients")
class DetachesTheActor(Sound):
    """The policy is read off memory without a gradient; only values teach what to remember."""

    def heads(self, y: Tensor) -> tuple[Tensor, Tensor]:
        return super().heads(y.detach())[0], super().heads(y)[1]


@caught_by("gradients_flow_within_an_episode")
class GradientsBreakLate(Sound):
    """From the ninth step of a sequence on, gradients are no numbers: 0 / 0 on the way back of a square root."""

    def sequence(self, obs: Tensor, state: State, first: Tensor, actions: Tensor | None) -> tuple[Outputs, State]:
        if len(obs) <= 8:
            return super().sequence(obs, state, first, actions)
        assert actions is not None
        early, between = super().sequence(obs[:8], state, first[:8], actions[:8])
        between = tuple(leaf + (leaf - leaf).square().sqrt() for leaf in between)
        late, final = super().sequence(obs[8:], between, first[8:], actions[8:])
        return {name: torch.cat([early[name], late[name]]) for name in early}, final


class Rooted(Network):
    def __init__(self) -> None:
        super().__init__()
        self.shift = nn.Parameter(torch.zeros(HIDDEN))


@caught_by("learning_has_gradients")
class RootsAtZero(Sound):
    """A square root is taken of a weight that begins at zero, where its slope is no number."""

    def network(self) -> Network:
        return Rooted()

    def encode(self, obs: Tensor) -> Tensor:
        return super().encode(obs) + self.module.get_parameter("shift").square().sqrt()


class Learning(Sound):
    """Knows whether it is learning."""

    learns = False

    def sequence(self, obs: Tensor, state: State, first: Tensor, actions: Tensor | None) -> tuple[Outputs, State]:
        self.learns = True
        try:
            return super().sequence(obs, state, first, actions)
        finally:
            self.learns = False


@caught_by("sequences_have_the_gradients_of_steps")
class ShrinksGradients(Learning):
    """While learning, a tenth of the gradient gets from a step to the one before it."""

    def reset(self, state: State, first: Tensor) -> State:
        kept = super().reset(state, first)
        return tuple(0.1 * leaf + 0.9 * leaf.detach() for leaf in kept) if self.learns else kept


@caught_by("sequences_have_the_gradients_of_steps")
class DetachesHalfTheUnits(Learning):
    """While learning, half of what is remembered is detached at every step."""

    def reset(self, state: State, first: Tensor) -> State:
        kept, half = super().reset(state, first), HIDDEN // 2
        if not self.learns:
            return kept
        return tuple(torch.cat([leaf[..., :half], leaf[..., half:].detach()], -1) for leaf in kept)


@caught_by("sequences_have_the_gradients_of_steps")
class DetachesOnce(Sound):
    """While learning, the state is detached at step 40."""

    def sequence(self, obs: Tensor, state: State, first: Tensor, actions: Tensor | None) -> tuple[Outputs, State]:
        if len(obs) <= 40:
            return super().sequence(obs, state, first, actions)
        assert actions is not None
        early, between = super().sequence(obs[:40], state, first[:40], actions[:40])
        between = tuple(leaf.detach() for leaf in between)
        late, final = super().sequence(obs[40:], between, first[40:], actions[40:])
        return {name: torch.cat([early[name], late[name]]) for name in early}, final


@caught_by("sequences_have_the_gradients_of_steps")
class OpensWithoutGradient(Sound):
    """While learning, the observation that opens an episode is detached: what was seen first is never learned from."""

    def sequence(self, obs: Tensor, state: State, first: Tensor, actions: Tensor | None) -> tuple[Outputs, State]:
        opens = (first != 0).unsqueeze(-1)
        return super().sequence(torch.where(opens, obs.detach(), obs), state, first, actions)
