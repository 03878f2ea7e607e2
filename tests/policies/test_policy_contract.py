"""The TensorDict contract of every policy: keys, shapes, memory interface, and torch.compile."""

# pyright: reportAttributeAccessIssue=false, reportCallIssue=false, reportArgumentType=false, reportFunctionMemberAccess=false
# torch types every attribute of a module as `Tensor | Module`.

import pytest
import torch
from tensordict import TensorDict

from holdfast.errors import SettingsError
from holdfast.policies import BoxPolicy, Fast
from holdfast.spec import BoxObs, ObsPart, TokenObs, WorldSpec, keys
from support.policies import (
    EVERY_POLICY,
    FEATURES,
    HAND_WRITTEN,
    MOVES,
    SYMBOLS,
    TOKENS,
    VECTOR,
    make,
    random_actions,
    random_arrivals,
    random_state,
    score,
    score_by_tensordict,
    step_td,
)

ACTING = {keys.ACTIONS, keys.LOG_PROB, keys.VALUES, keys.FULL_LOG_PROBS, keys.BPTT, keys.BATCH}
SCORING = {keys.LOG_PROB, keys.ENTROPY, keys.VALUES, keys.FULL_LOG_PROBS, keys.BPTT, keys.BATCH}
TEMPLATE = [name for name in EVERY_POLICY if name not in HAND_WRITTEN]


@pytest.mark.parametrize("name", TEMPLATE)
def test_acting_writes_its_keys(name):
    policy = make(name)
    out = policy(step_td(random_arrivals(policy.spec, 1, 3, seed=0), 0))
    assert set(out.keys()) >= ACTING
    assert out[keys.ACTIONS].shape == (3, *policy.spec.actions.shape)
    assert out[keys.LOG_PROB].shape == out[keys.VALUES].shape == (3,)
    assert out[keys.BPTT].tolist() == [1, 1, 1]
    assert out[keys.BATCH].tolist() == [3, 3, 3]


@pytest.mark.parametrize("name", TEMPLATE)
def test_scoring_writes_its_keys(name):
    policy = make(name)
    arrivals = random_arrivals(policy.spec, 4, 3, seed=0)
    actions = random_actions(policy.spec, (4, 3), torch.Generator().manual_seed(0))
    td = TensorDict({k: x.transpose(0, 1) for k, x in arrivals.items()}, batch_size=[3, 4])
    out = policy(td, state=random_state(policy, 3, 0), action=actions.transpose(0, 1))
    assert set(out.keys()) >= SCORING
    assert out[keys.ENTROPY].shape == out[keys.LOG_PROB].shape == (3, 4)
    assert (out[keys.BPTT] == 4).all()
    assert (out[keys.BATCH] == 3).all()


@pytest.mark.parametrize("name", EVERY_POLICY)
@pytest.mark.parametrize("missing", [keys.DONES, keys.TRUNCATEDS])
def test_a_call_without_episode_ends_is_refused(name, missing):
    """Silence about episode ends is how memory comes to cross them."""
    policy = make(name)
    td = step_td(random_arrivals(policy.spec, 1, 3, seed=0), 0).exclude(missing)
    with pytest.raises(KeyError, match=missing):
        policy(td)


@pytest.mark.parametrize("name", EVERY_POLICY)
def test_a_drawn_action_has_no_gradient_and_its_log_prob_that_of_scoring_it(name):
    policy = make(name)
    td = step_td(random_arrivals(policy.spec, 1, 3, seed=0), 0)
    start, weights = policy.initial_state(3), [*policy.parameters()]
    acted = policy(td.clone(), state=start)
    assert not acted[keys.ACTIONS].requires_grad
    scored = policy(td.clone(), state=start, action=acted[keys.ACTIONS])
    one, other = (torch.autograd.grad(y[keys.LOG_PROB].sum(), weights, allow_unused=True) for y in (acted, scored))
    for g, h in zip(one, other, strict=True):
        assert (g is None) == (h is None)
        if g is not None:
            torch.testing.assert_close(g, h)


@pytest.mark.parametrize("name", EVERY_POLICY)
def test_memory_interface(name):
    policy = make(name)
    assert policy.has_memory()
    arrivals = random_arrivals(policy.spec, 2, 3, seed=0, end_rate=0.0)
    policy(step_td(arrivals, 0))
    memory = policy.get_memory()
    assert [leaf.shape[:2] for leaf in memory] == [(layers, 3) for layers, _ in policy.state_shapes]
    assert all((leaf != 0).any() for leaf in memory)
    policy.reset_memory()
    assert all((leaf == 0).all() for leaf in policy.get_memory())
    policy.set_memory(memory)
    assert all(torch.equal(a, b) for a, b in zip(policy.get_memory(), memory, strict=True))


def test_a_policy_without_memory_says_so():
    policy = make("box", core="none")
    arrivals = random_arrivals(policy.spec, 3, 2, seed=0)
    assert not policy.has_memory()
    assert policy.get_memory() == ()
    out = [policy(step_td(arrivals, t))[keys.VALUES] for t in range(3)]
    actions = random_actions(policy.spec, (3, 2), torch.Generator().manual_seed(0))
    torch.testing.assert_close(torch.stack(out), score(policy, arrivals, (), actions)[keys.VALUES])


@pytest.mark.parametrize("name", TEMPLATE)
def test_experience_spec_names_the_observation(name):
    policy = make(name)
    expected = {keys.OBS: (policy.spec.obs.shape, policy.spec.obs.dtype)}
    if sizes := {"box-masked": 7, "box-nested": 5}.get(name):
        expected[keys.ACTION_MASK] = ((sizes,), "bool")
    assert policy.get_agent_experience_spec() == expected


@pytest.mark.parametrize("name", EVERY_POLICY)
def test_every_parameter_belongs_to_a_part_and_learns(name):
    policy = make(name)
    arrivals = random_arrivals(policy.spec, 3, 2, seed=0)
    actions = random_actions(policy.spec, (3, 2), torch.Generator().manual_seed(0))
    out = score(policy, arrivals, random_state(policy, 2, 0), actions)
    (out[keys.VALUES].sum() + out[keys.LOG_PROB].sum() + out[keys.ENTROPY].sum()).backward()
    parts = {policy.part_of(n) for n, _ in policy.named_parameters()}
    assert parts == {"encoder", "recurrence", "heads"}
    # A bias added to every score alike cancels in the probabilities.
    idle = {n for n, p in policy.named_parameters() if p.grad is None or not (p.grad.abs() > 1e-7).any()}
    assert idle <= {"action.bias", "components._action_.layer.bias"}


def test_lstm_by_hand_must_be_managed_first():
    policy = make("new-lstm-policy")
    with pytest.raises(RuntimeError, match="_manage_lstm_state"):
        policy.lstm(torch.zeros(1, 2, 10), policy.initial_state(2))
    td = step_td(random_arrivals(policy.spec, 1, 2, seed=0), 0)
    h, c, _ = policy._manage_lstm_state(td, 2, 1, torch.device("cpu"))
    with pytest.raises(RuntimeError, match="expected"):
        policy.lstm(torch.zeros(2, 1, 10), (h, c))


def test_agents_refuse_worlds_they_cannot_read():
    with pytest.raises(SettingsError, match="py_agent=box"):
        Fast(VECTOR)
    with pytest.raises(SettingsError, match="py_agent=box"):
        Fast(SYMBOLS)
    with pytest.raises(SettingsError, match="py_agent=fast"):
        BoxPolicy(TOKENS)


@pytest.mark.parametrize(
    "obs",
    [
        BoxObs((), "float32"),
        BoxObs((12, 12, 3), "uint8", scale=255.0),
        BoxObs((3, 12, 12), "uint8", scale=255.0),
        BoxObs((4, 5), "float32"),
        BoxObs((432,), "float32", (ObsPart("o.camera", (12, 12, 3), 0, 255.0),)),
        BoxObs((3,), "float32", (ObsPart("level", (), 0), ObsPart("speed", (2,), 1))),
        BoxObs((7, 7, 3), "uint8", scale=255.0),
        BoxObs((3, 6, 7), "float32"),
        BoxObs((2, 2, 3), "float32"),
    ],
    ids=[
        "scalar",
        "picture",
        "picture, channels first",
        "matrix",
        "Dict of one picture",
        "Dict with a scalar",
        "grid",
        "grid, channels first",
        "grid of 2 x 2",
    ],
)
def test_box_reads_every_shape_of_numbers(obs):
    torch.manual_seed(0)
    spec = WorldSpec("shapes", obs, MOVES, 1)
    policy = BoxPolicy(spec)
    flags = torch.zeros(2, dtype=torch.bool)
    x = torch.rand(2, *obs.shape) * 200
    td = TensorDict(
        {"env_obs": x.to(getattr(torch, obs.dtype)), "rewards": torch.zeros(2), "dones": flags, "truncateds": flags},
        [2],
    )
    policy.absorb(td["env_obs"])
    values = policy(td)["values"]
    assert values.shape == (2,)
    assert values[0] != values[1]


@pytest.mark.parametrize("window", [3, 11, 13, 15])
def test_fast_sees_every_cell_of_its_window(window):
    torch.manual_seed(0)
    policy = Fast(WorldSpec("window", TokenObs(1, (window, window), FEATURES), MOVES, 1))
    cells = [(r, c) for r in range(window) for c in range(window) if (r << 4 | c) < 0xFE]
    tokens = torch.tensor([[[r << 4 | c, 4, 1]] for r, c in cells], dtype=torch.uint8)
    with torch.no_grad():
        seen = policy.cnn1(policy.obs(tokens)).flatten(1)
    assert (seen.abs().sum(1) > 0).all()
    assert len(seen.unique(dim=0)) == len(cells)


def test_fast_has_the_published_sizes():
    policy = Fast(TOKENS)
    shapes = {name: tuple(p.shape) for name, p in policy.named_parameters()}
    assert shapes["cnn1.weight"] == (64, policy.obs.num_channels, 5, 5)
    assert shapes["cnn2.weight"] == (64, 64, 3, 3)
    assert shapes["fc1.weight"] == (128, 64)
    assert shapes["encoded_obs.weight"] == (128, 128)
    assert shapes["core.weight_hh_l1"] == (512, 128)
    assert "core.weight_hh_l2" not in shapes
    assert shapes["critic_1.weight"] == (1024, 128)
    assert shapes["actor_1.weight"] == (512, 128)
    assert shapes["action.W"] == (512, 16)
    assert shapes["action_embeds.weight"] == (100, 16)
    assert float(policy.action_embeds.weight.abs().max()) == pytest.approx(1.0)


@pytest.mark.compiles
@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "whole"),
    [
        *[("fast", True), ("new-lstm-policy", True)],
        ("box-masked", False),
    ],
)
def test_compiled_policies_give_the_same_outputs(name, whole):
    """torch.compile(policy), traced and differentiated whole; and policy.compile=true, compiled to machine code around the core."""
    plain, compiled = make(name), make(name)
    if whole:
        compiled = torch.compile(compiled, backend="aot_eager")
    else:
        compiled.compile_around_recurrence()
    arrivals = random_arrivals(plain.spec, 4, 3, seed=0)
    for t in range(2):
        a, b = plain(step_td(arrivals, t)), compiled(step_td(arrivals, t))
        torch.testing.assert_close(a[keys.VALUES], b[keys.VALUES], rtol=1e-4, atol=1e-5)
        torch.testing.assert_close(a[keys.FULL_LOG_PROBS], b[keys.FULL_LOG_PROBS], rtol=1e-4, atol=1e-5)
    actions = random_actions(plain.spec, (4, 3), torch.Generator().manual_seed(0))
    start = random_state(plain, 3, 0)
    one, two = (score_by_tensordict(p, arrivals, start, actions) for p in (plain, compiled))
    torch.testing.assert_close(one[keys.LOG_PROB], two[keys.LOG_PROB], rtol=1e-4, atol=1e-5)
    for policy, out in ((plain, one), (compiled, two)):
        policy.zero_grad()
        (out[keys.LOG_PROB].sum() + out[keys.VALUES].sum()).backward()
    for (name_, p), q in zip(plain.named_parameters(), compiled.parameters(), strict=True):
        torch.testing.assert_close(p.grad, q.grad, rtol=1e-3, atol=1e-4, msg=name_)
