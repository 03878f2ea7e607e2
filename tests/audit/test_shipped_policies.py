"""No false alarm: every policy that comes with Holdfast passes every check."""

import pytest

from holdfast.audit import Verdict, assert_sound, audit
from holdfast.audit.adapters import ContractPolicy
from support.policies import CELLS, EVERY_POLICY, make, random_obs

pytestmark = pytest.mark.slow


# A graph computes what its plain twin does, to the bit (guarantee 7). `make audit-agents` takes all, with every cell and twenty seeds.
EVERY_POLICY_AND_EVERY_CELL = [(name, "lstm") for name in EVERY_POLICY if not name.startswith("agent=")]
EVERY_POLICY_AND_EVERY_CELL += [("box", core) for core in CELLS if core != "lstm"]
EVERY_POLICY_AND_EVERY_CELL += [("box-symbols+sees", "lstm"), ("new-lstm-policy+sees", "lstm")]


@pytest.mark.parametrize(("name", "core"), EVERY_POLICY_AND_EVERY_CELL)
def test_every_policy_and_every_cell_is_sound(name, core):
    policy = make(name, core)
    subject = ContractPolicy(
        policy,
        lambda n, generator: random_obs(policy.spec, (n,), generator),
        f"{name} {core}",
        make=lambda: make(name, core, seed=1),
    )
    report = audit(subject)
    assert [(f.check.name, f.evidence) for f in report.failures] == []
    if core != "none":
        left_out = {f.check.name for f in report.findings if f.verdict == Verdict.NOT_RUN}
        assert left_out <= {"entropy_matches_policy"}


def test_words_as_on_the_command_line():
    report = assert_sound("py_agent=fast", "env=memory", checks=["slots_are_independent", "memory_is_used"])
    assert report.name == "py_agent=fast in memory"


def test_a_policy_without_memory_passes_every_check_that_can_run():
    assert_sound("py_agent=fast", "policy.core=none")


def test_memory_for_a_lifetime_is_declared_by_the_setting():
    report = assert_sound("env=memory", "policy.memory_scope=lifetime", checks=["reset_inside_sequence"])
    assert report.findings[0].verdict == Verdict.DECLARED


def test_a_class_may_declare_what_it_does_on_purpose():
    policy = make("box", "lstm")
    policy.memory_scope = "episode"
    type(policy).declared_deviations = ("zero_start_states",)
    try:
        subject = ContractPolicy(policy, lambda n, generator: random_obs(policy.spec, (n,), generator))
    finally:
        type(policy).declared_deviations = ()
    assert subject.declared == {"zero_start_states"}
