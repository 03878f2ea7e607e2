"""The experience buffer: rows are stored once, in order and detached, and incomplete rollouts are refused."""

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from holdfast.ppo import Experience, experience_bytes, gae, state_rows
from holdfast.spec import keys

S, T, K, HIDDEN = 3, 2, 2, 4
R = T * K


def make(num_slots: int = S, horizon: int = T, segments_per_slot: int = K, **changes) -> Experience:
    settings = {
        "spec": {keys.OBS: ((2,), "uint8"), keys.ACTIONS: ((), "int64")},
        "state_shapes": ((1, HIDDEN),),
        **changes,
    }
    return Experience(num_slots=num_slots, horizon=horizon, segments_per_slot=segments_per_slot, **settings)


def arrived(t: int, n: int = S, changes: dict[str, Any] | None = None) -> dict[str, Tensor | np.ndarray]:
    return {
        keys.OBS: torch.full((n, 2), t, dtype=torch.uint8),
        keys.REWARDS: torch.full((n,), float(t)),
        keys.DONES: torch.zeros(n, dtype=torch.bool),
        keys.TRUNCATEDS: torch.zeros(n, dtype=torch.bool),
        **(changes or {}),
    }


def row(experience: Experience, t: int) -> dict[str, Tensor]:
    return {key: x[0] for key, x in experience.inputs[t].items()}


def state(value: float, n: int = S) -> tuple[Tensor, ...]:
    return (torch.full((1, n, HIDDEN), float(value)),)


def act(experience: Experience, t: int, n: int = S) -> None:
    if t in experience.state_rows:
        experience.write_state(t, state(t, n))
    experience.write_action(t, torch.full((n,), t), torch.full((n,), -0.5), torch.full((n,), 0.5))


def fill(experience: Experience, arrivals: dict[int, dict] | None = None, begin: bool = True) -> Experience:
    """Write a whole rollout. arrivals: changes to the data of some rows. begin: also write row 0."""
    n = experience.num_slots
    if begin:
        experience.write_inputs(0, arrived(0, n))
    for t in range(experience.num_rows):
        act(experience, t, n)
        experience.write_inputs(t + 1, arrived(t + 1, n, (arrivals or {}).get(t + 1)))
    experience.write_bootstrap(torch.full((n,), 9.0))
    return experience


# ---------------------------------------------------------------------------------------------------- storing


def test_observations_keep_their_dtype_and_numpy_rows_are_copied():
    experience = make()
    reused = np.full((S, 2), 7, np.uint8)
    experience.write_inputs(0, arrived(0, changes={keys.OBS: reused, keys.DONES: np.ones(S, bool)}))
    reused[:] = 99  # worlds reuse their arrays
    kept = row(experience, 0)
    assert kept[keys.OBS].dtype == torch.uint8
    assert kept[keys.OBS].tolist() == [[7, 7]] * S
    assert kept[keys.DONES].all()


def test_stored_tensors_have_no_graph():
    experience = make()
    experience.write_inputs(0, arrived(0))
    weight = torch.ones(S, requires_grad=True)
    experience.write_state(0, ((torch.ones(1, S, HIDDEN, requires_grad=True) * 2),))
    experience.write_action(0, torch.zeros(S, dtype=torch.long), weight * 2, weight * 3)
    for t in range(1, R):
        experience.write_inputs(t, arrived(t))
        act(experience, t)
    experience.write_inputs(R, arrived(R))
    experience.write_bootstrap(weight * 4)
    batch = experience.segments(torch.arange(2))
    kept = [batch.log_prob, batch.values, *batch.start_state, experience.outcomes()["values"]]
    assert not any(x.requires_grad for x in kept)
    assert batch.values[0, 0].item() == 3.0


def test_the_last_row_is_row_0_of_the_next_rollout():
    experience = fill(make(), {R: {keys.DONES: torch.tensor([True, False, True])}})
    last = {key: x.clone() for key, x in row(experience, R).items()}
    experience.carry_over()
    for key, x in row(experience, 0).items():
        assert torch.equal(x, last[key]), key
    assert not experience.complete
    fill(experience, begin=False)
    assert experience.segments(torch.arange(S)).first[0].tolist() == [True, False, True]


def test_final_values_and_valid_flags_belong_to_the_previous_action():
    experience = make(segments_per_slot=1)
    experience.write_inputs(0, arrived(0))
    act(experience, 0)
    truncated = torch.tensor([False, True, False])
    experience.write_inputs(
        1, arrived(1, changes={keys.TRUNCATEDS: truncated}), valid=torch.tensor([True, True, False])
    )
    experience.write_final_values(1, torch.tensor([5.0]), torch.tensor([1]))
    act(experience, 1)
    experience.write_inputs(2, arrived(2))
    experience.write_bootstrap(torch.zeros(S))
    outcomes = experience.outcomes()
    assert outcomes["valid"].tolist() == [[True, True, False], [True, True, True]]
    assert outcomes["final_values"][0, 1].item() == 5.0
    advantages, _ = gae(**outcomes, gamma=1.0, lam=1.0)
    assert advantages[0].tolist() == [1.0 + 2.0 - 0.5, 1.0 + 5.0 - 0.5, 0.0]


def test_final_values_are_cleared_for_the_next_rollout():
    experience = make(segments_per_slot=1, horizon=1)
    cut = {1: {keys.TRUNCATEDS: torch.ones(S, dtype=torch.bool)}}
    fill(experience, cut)
    with pytest.raises(RuntimeError, match="use row 1 or later"):
        experience.write_final_values(0, torch.zeros(S), torch.arange(S))
    experience.write_final_values(1, torch.ones(S), torch.arange(S))
    experience.carry_over()
    fill(experience, cut, begin=False)
    assert experience.outcomes()["final_values"].isnan().all()


def test_dropping_an_episode_invalidates_all_its_steps():
    ends = {
        1: {keys.DONES: torch.tensor([False, False, True])},
        2: {keys.TRUNCATEDS: torch.tensor([False, True, False])},
    }
    experience = make(segments_per_slot=2)
    experience.write_inputs(0, arrived(0))
    for t in range(3):
        act(experience, t)
        experience.write_inputs(t + 1, arrived(t + 1, changes=ends.get(t + 1)))
    experience.drop_episode(3, torch.tensor([1, 2]))
    act(experience, 3)
    experience.write_inputs(4, arrived(4))
    experience.write_bootstrap(torch.zeros(S))
    valid = experience.outcomes()["valid"].T.tolist()
    assert valid == [[True] * 4, [True, True, False, True], [True, False, False, True]]


def test_an_episode_dropped_on_its_first_step():
    experience = make(num_slots=1, horizon=1, segments_per_slot=1)
    experience.write_inputs(0, arrived(0, 1))
    act(experience, 0, 1)
    experience.write_inputs(1, arrived(1, 1))
    experience.drop_episode(1, torch.tensor([0]))
    experience.write_bootstrap(torch.zeros(1))
    assert not experience.outcomes()["valid"].any()


def test_bytes_per_step_counts_everything():
    experience = make()
    per_arrival = 2 + 4 + 1 + 1  # observation, reward, two flags
    per_step = 8 + 4 + 1 + 4 + 4 + 4  # action, log-prob, valid, final value, advantage, return
    values = 4 * (R + 1)
    states = K * HIDDEN * 4
    assert experience.bytes_per_step == (per_arrival * (R + 1) + per_step * R + values + states) / R


def test_poison_fills_every_row_not_yet_written():
    experience = fill(make(poison=True))
    assert not experience.segments(torch.arange(K * S)).start_state[0].isnan().any()
    experience.carry_over()
    assert row(experience, 1)[keys.REWARDS].isnan().all()
    assert (row(experience, 1)[keys.OBS] == 255).all()
    assert experience._states[0].isnan().all()
    assert (experience._actions == torch.iinfo(torch.int64).max).all()
    assert row(experience, 0)[keys.REWARDS].tolist() == [R] * S


def test_a_policy_without_memory_has_no_start_states():
    experience = make(state_shapes=())
    experience.write_inputs(0, arrived(0))
    for t in range(R):
        experience.write_action(t, torch.zeros(S, dtype=torch.long), torch.zeros(S), torch.zeros(S))
        experience.write_inputs(t + 1, arrived(t + 1))
    experience.write_bootstrap(torch.zeros(S))
    assert experience.segments(torch.arange(2)).start_state == ()


# --------------------------------------------------------------------------------------------------- refusing


NOTHING = (torch.zeros(S, dtype=torch.long), torch.zeros(S), torch.zeros(S))


def test_a_row_written_twice_raises():
    experience = make()
    experience.write_inputs(0, arrived(0))
    with pytest.raises(RuntimeError, match="inputs of row 0 written out of order"):
        experience.write_inputs(0, arrived(0))
    act(experience, 0)
    with pytest.raises(RuntimeError, match="action of row 0 written out of order"):
        experience.write_action(0, *NOTHING)
    with pytest.raises(RuntimeError, match="state of row 0 written out of order"):
        experience.write_state(0, state(0.0))


def test_a_skipped_row_raises():
    experience = make()
    experience.write_inputs(0, arrived(0))
    with pytest.raises(RuntimeError, match=r"inputs of row 1 .* 1 rows of inputs, 0 states, 0 actions"):
        experience.write_inputs(1, arrived(1))
    with pytest.raises(RuntimeError, match="action of row 1"):
        experience.write_action(1, *NOTHING)
    act(experience, 0)
    with pytest.raises(RuntimeError, match=r"action of row 1 .* 1 rows of inputs, 1 states, 1 actions"):
        experience.write_action(1, *NOTHING)


def test_acting_without_storing_the_start_state_raises():
    experience = make()
    experience.write_inputs(0, arrived(0))
    with pytest.raises(RuntimeError, match="0 states"):
        experience.write_action(0, *NOTHING)
    with pytest.raises(RuntimeError, match=r"row 1 stores no state; .* rows \[0, 2\]"):
        experience.write_state(1, state(0.0))


def test_rows_past_the_end_raise():
    experience = fill(make())
    with pytest.raises(RuntimeError, match="call write_bootstrap instead"):
        experience.write_action(R, *NOTHING)
    with pytest.raises(RuntimeError, match="row 5"):
        experience.write_inputs(R + 1, arrived(R + 1))
    with pytest.raises(RuntimeError, match="bootstrap values written out of order"):
        experience.write_bootstrap(torch.zeros(S))


@pytest.mark.parametrize("read", ["segments", "burn_in", "whole", "outcomes", "carry_over", "replace_start_states"])
def test_an_incomplete_rollout_cannot_be_read(read):
    arguments = {
        "segments": (torch.arange(1),),
        "burn_in": (torch.arange(1),),
        "replace_start_states": (1, state(0.0)),
    }.get(read, ())
    experience = make()
    experience.write_inputs(0, arrived(0))
    for t in range(R):
        act(experience, t)
        if t + 1 < R:
            experience.write_inputs(t + 1, arrived(t + 1))
    with pytest.raises(RuntimeError, match="bootstrap values written out of order"):
        experience.write_bootstrap(torch.zeros(S))
    with pytest.raises(RuntimeError, match=r"incomplete, with 4 of 5 rows of inputs and 4 of 4 actions"):
        getattr(experience, read)(*arguments)
    experience.write_inputs(R, arrived(R))
    with pytest.raises(RuntimeError, match=r"incomplete, with 5 of 5 rows of inputs"):
        getattr(experience, read)(*arguments)
    experience.write_bootstrap(torch.zeros(S))
    getattr(experience, read)(*arguments)


@pytest.mark.parametrize(
    ("key", "value", "says"),
    [
        (keys.OBS, torch.zeros(S, 2), "torch.float32"),
        (keys.OBS, torch.zeros(1, 2, dtype=torch.uint8), r"uint8 \[1, 2\]"),
        (keys.DONES, torch.zeros(S, dtype=torch.int64), "dones is torch.int64"),
        (keys.REWARDS, torch.zeros(S, 1), r"rewards is .* \[3, 1\]"),
    ],
)
def test_wrong_shapes_and_dtypes_are_refused(key, value, says):
    with pytest.raises(ValueError, match=says):
        make().write_inputs(0, arrived(0, changes={key: value}))


def test_a_state_of_another_size_is_refused():
    experience = make(state_shapes=((2, HIDDEN),))
    experience.write_inputs(0, arrived(0))
    with pytest.raises(ValueError, match="state is"):
        experience.write_state(0, state(1.0))


def test_a_key_in_the_spec_must_arrive():
    experience = make(spec={keys.OBS: ((2,), "uint8"), keys.ACTIONS: ((), "int64"), "mask": ((5,), "bool")})
    with pytest.raises(KeyError, match="mask"):
        experience.write_inputs(0, arrived(0))


def test_impossible_sizes_are_refused():
    with pytest.raises(ValueError, match="horizon=0"):
        make(horizon=0)
    with pytest.raises(ValueError, match="lacks"):
        make(spec={keys.OBS: ((), "float32")})


@pytest.mark.parametrize("ids", [[-1], [0, K * S]])
def test_ids_outside_are_refused(ids):
    with pytest.raises(IndexError, match="0 to 5"):
        fill(make()).segments(torch.tensor(ids))


def test_axes_in_the_wrong_order_are_refused():
    experience = fill(make())
    with pytest.raises(ValueError, match=r"\[4, 3, ...\], got \[3, 4\]"):
        experience.write_back(torch.zeros(S, R), torch.arange(2), torch.zeros(T, 2))
    with pytest.raises(ValueError, match=r"\[2, 1, ...\], got \[1, 2\]"):
        experience.write_back(torch.zeros(R, S), torch.tensor([0]), torch.zeros(1, 2))


# -------------------------------------------------------------------------------------------------- replaying


def test_write_back_reaches_the_tensor_itself():
    experience = fill(make())
    x = torch.zeros(R, S)
    experience.write_back(x, torch.tensor([4, 0]), torch.tensor([[10.0, 1.0], [20.0, 2.0]]))
    # id 4 is segment 1 of slot 1: rows 2, 3; id 0 is segment 0 of slot 0: rows 0, 1
    assert x.tolist() == [[1, 0, 0], [2, 0, 0], [0, 10, 0], [0, 20, 0]]
    experience.advantages = x
    assert experience.segments(torch.tensor([0, 4])).advantages.tolist() == [[1, 10], [2, 20]]


def test_write_back_works_on_a_tensor_that_is_not_contiguous():
    experience = fill(make())
    x = torch.zeros(S, R).T
    experience.write_back(x, torch.tensor([5]), torch.ones(T, 1))
    assert x.sum().item() == T


def test_segments_start_from_replaced_states():
    experience = fill(make(segments_per_slot=3))
    ids = torch.tensor([0, S + 1, 2 * S + 2])
    stored = experience.segments(ids).start_state[0]
    assert stored[0, :, 0].tolist() == [0.0, 2.0, 4.0]
    fresh = torch.arange(S * HIDDEN, dtype=torch.float32).reshape(1, S, HIDDEN) + 100
    experience.replace_start_states(1, (fresh.requires_grad_(True),))
    replaced = experience.segments(ids).start_state[0]
    assert torch.equal(replaced[:, 1], fresh[:, 1])
    assert torch.equal(replaced[:, [0, 2]], stored[:, [0, 2]])
    assert not replaced.requires_grad


def test_the_next_rollout_starts_from_stored_states_again():
    experience = fill(make())
    experience.replace_start_states(1, state(77.0))
    experience.carry_over()
    fill(experience, begin=False)
    assert experience.segments(torch.arange(S, 2 * S)).start_state[0].unique().tolist() == [2.0]


@pytest.mark.parametrize("k", [0, K])
def test_only_segments_that_follow_another_can_be_refreshed(k):
    with pytest.raises(ValueError, match="1 to 1"):
        fill(make()).replace_start_states(k, state(0.0))


def test_a_minibatch_is_a_copy():
    experience = fill(make())
    batch = experience.segments(torch.arange(S))
    batch.start_state[0].fill_(-1)
    batch.values.fill_(-1)
    again = experience.segments(torch.arange(S))
    assert (again.start_state[0] >= 0).all()
    assert (again.values >= 0).all()


def test_rows_whose_state_is_stored():
    assert state_rows(horizon=4, segments_per_slot=3) == {0: 0, 4: 1, 8: 2}
    assert state_rows(horizon=4, segments_per_slot=3, burn_in=1) == {0: 0, 3: 1, 4: 2, 7: 3, 8: 4}
    assert state_rows(horizon=4, segments_per_slot=3, burn_in=4) == {0: 0, 4: 1, 8: 2}
    assert state_rows(horizon=4, segments_per_slot=3, burn_in=6) == {0: 0, 2: 1, 4: 2, 8: 3}


def test_the_whole_rollout_is_a_view():
    experience = fill(make())
    whole = experience.whole()
    assert whole.actions.data_ptr() == experience.whole().actions.data_ptr()
    assert whole.inputs[keys.OBS].data_ptr() == row(experience, 0)[keys.OBS].data_ptr()


def running_sum(x: Tensor, h: Tensor, first: Tensor) -> Tensor:
    """Return the states [T, M] of a memory that sums its inputs x [T, M] from h [M] and resets at `first`."""
    states = []
    for t in range(len(x)):
        h = torch.where(first[t], 0.0, h) * 0.5 + x[t]
        states.append(h)
    return torch.stack(states)


@pytest.mark.parametrize("burn_in", [0, 1, 3, 4, 7, 50])
def test_burn_in_and_refresh_with_unchanged_weights_reproduce_the_stored_states(burn_in):
    generator = torch.Generator().manual_seed(0)
    spec = {keys.OBS: ((), "float32"), keys.ACTIONS: ((), "int64")}
    experience = make(horizon=4, segments_per_slot=3, spec=spec, state_shapes=((1, 1),), burn_in=burn_in)
    memory = torch.randn(S, generator=generator)

    def arrives() -> dict[str, Tensor]:
        flags = torch.rand(2, S, generator=generator) < 0.15
        obs = torch.randn(S, generator=generator)
        return {keys.OBS: obs, keys.REWARDS: torch.zeros(S), keys.DONES: flags[0], keys.TRUNCATEDS: flags[1]}

    experience.write_inputs(0, arrives())
    for t in range(12):
        inputs = row(experience, t)
        if t in experience.state_rows:
            experience.write_state(t, (memory.reshape(1, S, 1),))
        memory = running_sum(inputs[keys.OBS][None], memory, (inputs[keys.DONES] | inputs[keys.TRUNCATEDS])[None])[-1]
        experience.write_action(t, torch.zeros(S, dtype=torch.long), torch.zeros(S), torch.zeros(S))
        experience.write_inputs(t + 1, arrives())
    experience.write_bootstrap(torch.zeros(S))

    ids = torch.randperm(9, generator=generator)
    stored = experience.segments(ids).start_state[0][0, :, 0]
    warmed = stored.clone()
    for group in experience.burn_in(ids):
        states = running_sum(group.inputs[keys.OBS], group.start_state[0][0, :, 0], group.first)
        warmed[group.positions] = states[-1]
    assert torch.equal(warmed, stored)
    assert bool(experience.burn_in(ids)) == (burn_in > 0)

    whole = experience.whole()
    states = running_sum(whole.inputs[keys.OBS], whole.start_state[0][0, :, 0], whole.first)
    for k in (1, 2):
        experience.replace_start_states(k, (states[k * 4 - 1].reshape(1, S, 1),))
    assert torch.equal(experience.segments(ids).start_state[0][0, :, 0], stored)


def test_its_size_is_known_before_it_is_made():
    """Up to the extra row, which is a small part of a real buffer."""
    spec = {"env_obs": ((5, 3), "uint8"), "actions": ((), "int64"), "action_mask": ((7,), torch.bool)}
    shapes = [(2, 16), (1, 8)]
    made = Experience(spec, num_slots=6, horizon=50, segments_per_slot=4, state_shapes=shapes)
    known = experience_bytes(spec, 6, 50, 4, shapes)
    assert known <= made.bytes_per_step * 6 * 200 < 1.01 * known
