"""Checks that learning reproduces what acting computed, and that calls have no side effects."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

import torch

from holdfast.audit.compare import differences
from holdfast.audit.context import Context
from holdfast.audit.findings import Register, Tally
from holdfast.audit.retained import retained_tensors
from holdfast.audit.script import ACT, AWKWARD_RESETS, SCORE, SEQUENCE, STATE, STEP, Script, Trace
from holdfast.audit.sensitivity import modes_restored
from holdfast.audit.subject import NotOfferedError, Outputs, copy_state
from holdfast.errors import name_some

CHECKS = Register()


def _act_and_score(ctx: Context) -> tuple[Trace, Trace, float]:
    """Act on a script with resets, then score it as learning does. Return both runs and the difference allowed."""
    script = ctx.script(resets=AWKWARD_RESETS if ctx.learning_resets else {}, initial=True)
    acted = ctx.run(ACT if ACT in ctx.forms else STEP, script)
    with torch.enable_grad():  # learning records gradients, which may select other kernels
        scored = ctx.run(SEQUENCE, script, acted.actions)
    return acted, scored, ctx.replay_limit(script, acted.actions)


def _expect_parity(ctx: Context, tally: Tally, name: str) -> None:
    acted, scored, limit = _act_and_score(ctx)
    if name not in acted.outputs or name not in scored.outputs:
        raise NotOfferedError(f"acting and learning do not both return {name}")
    size = float(differences(acted.outputs, scored.outputs, (name,)).max())
    tally.expect_unchanged(SEQUENCE, size, f"{name} is {size:.2g} away from the one stored while acting", limit)


@CHECKS(needs=(SEQUENCE,), look_at="sequence", quick=True)
def log_probs_replay(ctx: Context, tally: Tally) -> None:
    """Before any update, learning computes the log-probs that acting stored.

    Cost: PPO ratios are not 1 even before the first update. That adds noise to every update, and no error shows it.
    Fix: Score the action that was taken, from the recorded state, in the same mode (train or eval).
    """
    _expect_parity(ctx, tally, "log_prob")


@CHECKS(needs=(SEQUENCE,), look_at="sequence", quick=True)
def values_replay(ctx: Context, tally: Tally) -> None:
    """Before any update, learning computes the same values that acting stored.

    Cost: Advantages are computed with one value function, but another one is trained.
    Fix: Compute values from the same state with the same code in both places.
    """
    _expect_parity(ctx, tally, "value")


@CHECKS(needs=(SEQUENCE,), look_at="sequence")
def entropy_matches_policy(ctx: Context, tally: Tally) -> None:
    """The entropy in learning equals the entropy in acting, and the entropy computed from the log-probs.

    Cost: The entropy bonus maximises something that is not the policy's entropy.
    Fix: Take the entropy of the distribution that actions are sampled from, action masks included.
    """
    acted, scored, _ = _act_and_score(ctx)
    entropy, all_log_probs = scored.outputs.get("entropy"), scored.outputs.get("full_log_probs")
    if entropy is None:
        raise NotOfferedError("sequence returns no entropy")
    if "entropy" in acted.outputs:
        size = float(differences(acted.outputs, scored.outputs, ("entropy",)).max())
        tally.expect_unchanged(SEQUENCE, size, f"entropy is {size:.2g} away from that of acting")
    if all_log_probs is None:
        raise NotOfferedError("sequence returns no full_log_probs to compare entropy with")
    probabilities = all_log_probs.double().exp()
    if not torch.allclose(probabilities.sum(-1), torch.ones((), dtype=torch.double), atol=1e-2):
        raise NotOfferedError("probabilities do not sum to 1: an action may consist of several choices")
    expected = {"entropy": torch.special.entr(probabilities).sum(-1)}
    size = float(differences(expected, {"entropy": entropy}).max())
    tally.expect_unchanged(SEQUENCE, size, f"entropy is {size:.2g} away from the one computed from full_log_probs")


@CHECKS(root=2)
def inputs_are_not_modified(ctx: Context, tally: Tally) -> None:
    """No call writes into the state, observations or flags it is given.

    Cost: The first epoch damages the stored start states, and every later epoch replays from a wrong memory.
    Fix: Do not write into arguments: clone before zero_() or index assignment.
    """
    for call in ctx.calls:
        script = ctx.script(resets=AWKWARD_RESETS)
        actions = ctx.run(STEP, script).actions
        given = (*script.start, script.obs, script.first)
        kept = copy_state(given)
        ctx.run(call, script, actions, copies=False)
        names = [*map(ctx.subject.state_name, range(len(script.start))), "observations", "flags"]
        changed = [name for name, x, y in zip(names, given, kept, strict=True) if not torch.equal(x, y)]
        tally.expect(call, not changed, f"wrote into its arguments: {', '.join(changed)}")
    script = ctx.script(T=2)
    _, after = ctx.subject.step(script.obs[0], script.start, script.first[0])
    kept = copy_state(after)
    ctx.subject.step(script.obs[1], after, script.first[1])
    same = all(torch.equal(x, y) for x, y in zip(after, kept, strict=True))
    tally.expect(STEP, same, "a step changed the state that the previous step had returned")


@CHECKS(needs=(STATE, ACT, SEQUENCE), look_at="sequence", quick=True)
def learning_does_not_write_memory(ctx: Context, tally: Tally) -> None:
    """Scoring sequences does not change the policy's memory.

    Cost: Each update changes the memory of acting, so agents continue from a wrong one after every batch.
    Fix: Score from the state that is passed in; write memory only when acting.
    """
    ctx.run(ACT, ctx.script(T=3))
    kept = copy_state(ctx.subject.get_memory())
    script = ctx.script(resets=AWKWARD_RESETS)
    for call in (SEQUENCE, SCORE):
        with suppress(NotOfferedError), torch.enable_grad():
            ctx.run(call, script, draw=1)
            tally.expect_unchanged(call, *ctx.memory_change(kept, "scoring"))


@CHECKS(quick=True, root=2)
def calls_are_repeatable(ctx: Context, tally: Tally) -> None:
    """The same call gives the same outputs, sampled actions aside, whatever ran in between and whatever the RNG state.

    Cost: Learning cannot reproduce what acting computed. Other failures may follow from this one.
    Fix: Look for values kept on the policy between calls (self.last = ..., a counter of calls) that belong in the state,
    and for dropout, noise or samples drawn in forward. Return sampled actions as `actions` and their log-probs as `log_prob`.
    """
    changed: list[str] = []  # tensors kept on the policy that step or sequence changes (act may change its memory)
    for form in ctx.forms:
        script, between = ctx.script(resets=AWKWARD_RESETS), ctx.script(T=3)
        actions = ctx.run(STEP, script).actions
        one = ctx.run(form, script, actions, draw=1).outputs
        kept = {name: x.clone() for name, x in retained_tensors(ctx.subject)} if form != ACT else {}
        ctx.run(form, between)
        now = dict(retained_tensors(ctx.subject))
        changed += [name for name, x in kept.items() if name not in now or not x.equal(now[name])]
        two = ctx.run(form, script, actions, draw=2).outputs
        size = ctx.difference_ignoring_draws(one, two)
        hint = f"; a call changes {name_some(changed)}" if changed else ""
        tally.expect_unchanged(form, size, f"outputs of two equal calls differ by {size:.2g}{hint}")


@CHECKS()
def thread_independent(ctx: Context, tally: Tally) -> None:
    """The same call in another thread gives equal outputs.

    Cost: Workers and servers act in other threads, where the policy then computes something different than in learning.
    Fix: Pass modes and states as arguments. In another thread, a threading.local, a context manager or a global may be
    unset or have another value.
    """
    with ThreadPoolExecutor(max_workers=1) as thread:
        for form in ctx.forms:
            script = ctx.script(resets=AWKWARD_RESETS)

            def outputs(form: str = form, script: Script = script) -> Outputs:
                with torch.no_grad():  # each thread has its own gradient mode
                    return ctx.run(form, script).outputs

            size = float(differences(outputs(), thread.submit(outputs).result()).max())
            tally.expect_unchanged(form, size, f"in another thread, outputs of the same call differ by {size:.2g}")


@CHECKS()
def train_and_eval_agree(ctx: Context, tally: Tally) -> None:
    """train() and eval() give the same outputs.

    Cost: If acting uses eval mode and learning train mode (or the reverse), they run two different policies.
    Fix: Remove dropout and batch statistics, because sooner or later the policy acts in one mode and learns in the
    other.
    """
    module = ctx.require_module()
    with modes_restored(module):
        for form in ctx.pure_forms:
            script = ctx.script(resets=AWKWARD_RESETS)
            actions = ctx.run(STEP, script).actions
            module.train()
            training = ctx.run(form, script, actions, draw=1).outputs
            module.eval()
            size = float(differences(training, ctx.run(form, script, actions, draw=1).outputs).max())
            tally.expect_unchanged(form, size, f"outputs in train() and in eval() differ by {size:.2g}")
