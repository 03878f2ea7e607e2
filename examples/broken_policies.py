"""The standard agent with one state bug each, as real projects had them. docs/bugs.md shows what each one costs.

holdfast audit examples/broken_policies.py:NoResets
holdfast train py_agent=examples/broken_policies.py:NoResets settings=quickstart audit=off

Acting is T=1 and learning is T=horizon of the same `unroll`, so a bug in learning alone checks for T > 1.
"""

import torch

from holdfast.policies.plain.fast import Fast
from holdfast.spec import keys

# ------------------------------------------------------------------------------------------------- episode ends


class NoResets(Fast):
    """Memory is never reset, neither in acting nor in learning."""

    caught_by = "reset_inside_sequence"
    seen = "PufferLib 3.0 and 4.0"

    def unroll(self, inputs, first, start):
        return super().unroll(inputs, torch.zeros_like(first), start)


class LearningIgnoresResets(Fast):
    """Acting resets at every episode start, learning only at the first step of a segment."""

    caught_by = "steps_equal_sequence_across_resets"
    seen = "Metta since November 2025"

    def unroll(self, inputs, first, start):
        opening = torch.zeros_like(first)
        opening[0] = first[0]
        return super().unroll(inputs, opening, start)


class ResetsAfterStep(Fast):
    """The reset comes after the step instead of before it: the old memory is used, and the first observation is lost."""

    caught_by = "first_observations_are_remembered"
    seen = "rl_games #362, CleanRL's pqn with envpool"

    def unroll(self, inputs, first, start):
        late = torch.cat([torch.zeros_like(first[:1]), first[:-1]])
        params, values, final = super().unroll(inputs, late, start)
        return params, values, tuple(leaf * ~first[-1][:, None] for leaf in final)


class StepByStep(Fast):
    """No bug: `Fast` with its core run one step at a time, so that subclasses can change what happens between steps."""

    def between(self, state, first):
        """Return the state [layers, B, hidden] that a step starts from: zeros where first [B] is set."""
        return tuple(leaf * ~first[:, None] for leaf in state)

    def unroll(self, inputs, first, start):
        T, B = first.shape
        x = self.encode_observations(inputs[keys.OBS].flatten(0, 1)).unflatten(0, (T, B))
        steps, state, never = [], start, torch.zeros_like(first[:1])
        for t in range(T):
            y, state = self.core(x[t : t + 1], self.between(state, first[t]), never)
            steps.append(y)
        params, values = self.decode_actions(torch.cat(steps).flatten(0, 1))
        return params.unflatten(0, (T, B)), values.reshape(T, B), state


class ResetsOnlyH(StepByStep):
    """A reset clears h and not c."""

    caught_by = "reset_clears_whole_state"
    seen = ""

    def between(self, state, first):
        return super().between(state, first)[0], state[1]


class FlagsAsIndices(StepByStep):
    """Integer flags are used as an index: slots 0 and 1 are reset, whichever episode has ended."""

    caught_by = "reset_at_first_step"
    seen = "IsaacLab #888"

    def between(self, state, first):
        cleared = tuple(leaf.clone() for leaf in state)
        for leaf in cleared:
            leaf[:, first.long()] = 0.0
        return cleared


# -------------------------------------------------------------------------------------------------------- time


class ActingHasNoMemory(Fast):
    """Acting starts every step from the initial state; learning has memory."""

    caught_by = "memory_is_used"
    seen = "SB3 predict, torchrl #1406"

    def act(self, inputs, state):
        return super().act(inputs, self.initial_state(inputs[keys.DONES].shape[1]))


class StartsFromZeros(Fast):
    """Learning starts every segment from zeros; acting carries its memory on."""

    caught_by = "start_state_is_used"
    seen = "tianshou #486"

    def unroll(self, inputs, first, start):
        return super().unroll(inputs, first, self.initial_state(first.shape[1]) if len(first) > 1 else start)


class StartsOneStepLate(Fast):
    """Learning starts a segment from the memory after its first step instead of the one before it."""

    caught_by = "replay_from_stored_state"
    seen = "ml-agents #4941"

    def unroll(self, inputs, first, start):
        if len(first) > 1:
            _, _, start = super().unroll({key: x[:1] for key, x in inputs.items()}, first[:1], start)
        return super().unroll(inputs, first, start)


class MixesTimeAndSlots(Fast):
    """Learning mixes up [T, B] and [B, T] in a reshape."""

    caught_by = "steps_equal_sequence"
    seen = "cleanrl #83, recurrent-ppo-truncated-bptt"

    def unroll(self, inputs, first, start):
        T, B = first.shape
        mixed = {key: x.reshape(B, T, *x.shape[2:]).transpose(0, 1) for key, x in inputs.items()}
        return super().unroll(mixed, first, start)


class DetachesEveryStep(StepByStep):
    """The state is detached between the steps of a segment: nothing is learned through time."""

    caught_by = "gradients_flow_through_time"
    seen = ""

    def between(self, state, first):
        return super().between(tuple(leaf.detach() for leaf in state), first)


class ValueCallAdvancesMemory(Fast):
    """Computing the bootstrap value at the end of a rollout also advances the memory of acting."""

    caught_by = "value_call_does_not_write_memory"
    seen = "rsl_rl #130, #206"

    def predict_values(self, inputs, state):
        _, values, final = self.unroll(inputs, self.episode_starts(inputs), state)
        self.memory.write(torch.arange(values.shape[1]), final)
        return values


# ------------------------------------------------------------------------------------------------------- slots


class ReshapesLayers(Fast):
    """Learning reshapes the start state from [slots, layers, hidden] to [layers, slots, hidden]."""

    caught_by = "layers_are_not_mixed"
    seen = "sb3-contrib #111"

    def unroll(self, inputs, first, start):
        if len(first) > 1:
            start = tuple(leaf.transpose(0, 1).reshape(leaf.shape) for leaf in start)
        return super().unroll(inputs, first, start)


class SubtractsBatchMean(Fast):
    """The mean over the batch (other slots, and in learning other steps) is subtracted from the features."""

    caught_by = "slots_are_independent"
    seen = "MettaGrid's own LSTM policy"

    def encode_observations(self, observations):
        x = super().encode_observations(observations)
        return x - x.mean(0)


class NormaliserUpdatesInForward(Fast):
    """A running mean that every call updates is subtracted from the features, so acting and learning use different ones."""

    caught_by = "calls_do_not_change_weights"
    seen = "Sample Factory, rl_games, skrl, rsl_rl"
    mean: torch.Tensor

    def __init__(self, spec, **memory):
        super().__init__(spec, **memory)
        self.register_buffer("mean", torch.zeros(self.core.input_size))

    def encode_observations(self, observations):
        x = super().encode_observations(observations)
        self.mean.lerp_(x.detach().mean(0), 0.01)
        return x - self.mean.clone()


BROKEN = (
    NoResets,
    LearningIgnoresResets,
    ResetsAfterStep,
    ResetsOnlyH,
    FlagsAsIndices,
    ActingHasNoMemory,
    StartsFromZeros,
    StartsOneStepLate,
    MixesTimeAndSlots,
    DetachesEveryStep,
    ValueCallAdvancesMemory,
    ReshapesLayers,
    SubtractsBatchMean,
    NormaliserUpdatesInForward,
)
