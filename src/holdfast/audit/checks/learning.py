"""Learning looks at what was lived: the same log-probs, values and entropies, and nothing is changed by looking."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

import torch

from holdfast.audit.checks.register import Register
from holdfast.audit.compare import differences
from holdfast.audit.examination import Examination
from holdfast.audit.findings import SAME, Tally
from holdfast.audit.holdings import kept_tensors
from holdfast.audit.script import ACTING, AWKWARD_ENDS, SCORING, SEQUENCE, STEPPING, Script, Trace
from holdfast.audit.subject import ACTIONS, NotOfferedError, Outputs, copied
from holdfast.audit.waking import modes_kept

CHECKS = Register()


def _lived_and_scored(e: Examination) -> tuple[Trace, Trace, float]:
    """A rollout with episode ends from a blank memory, the same scored as learning does it, and how far apart they may be."""
    e.probe.needs(SEQUENCE)
    ends = AWKWARD_ENDS if e.learning_resets else {}
    script = e.probe.script(ends=ends, blank=True)
    lived = e.probe.run(ACTING if ACTING in e.probe.forms else STEPPING, script)
    actions = lived.outputs.get(ACTIONS)
    with torch.enable_grad():  # learning's kernels, not acting's
        scored = e.probe.run(SEQUENCE, script, actions)
    return lived, scored, SAME + 10 * e.rounding_of_actions(script, actions)


def _parity(e: Examination, tally: Tally, name: str) -> None:
    with torch.no_grad():
        lived, scored, limit = _lived_and_scored(e)
        if name not in lived.outputs or name not in scored.outputs:
            raise NotOfferedError(f"acting and scoring do not both give {name}")
        size = float(differences(lived.outputs, scored.outputs, (name,)).max())
        tally.still(SEQUENCE, size, f"{name} scored again is {size:.2g} away from what acting stored", limit)


@CHECKS(
    cost="Every update is weighted by ratios that were never 1: the policy is pushed by noise, in silence.",
    mend="Score the action that was taken, from the state that was lived, in the same mode.",
    look_at="sequence",
    quick=True,
)
def log_probs_replay(e: Examination, tally: Tally) -> None:
    """The log-prob of a stored action, scored again before any update, is the one stored."""
    _parity(e, tally, "log_prob")


@CHECKS(
    cost="Advantages are computed with one value function and learned with another.",
    mend="Compute values with the same state and the same code in both places.",
    look_at="sequence",
    quick=True,
)
def values_replay(e: Examination, tally: Tally) -> None:
    """The value of a stored step, scored again before any update, is the one stored."""
    _parity(e, tally, "value")


@CHECKS(
    cost="The entropy bonus pushes towards something that is not the policy's entropy.",
    mend="Take the entropy of the distribution that was sampled from, masks included.",
    look_at="sequence",
)
def entropy_is_that_of_the_policy(e: Examination, tally: Tally) -> None:
    """The entropy that learning uses is the same one step at a time, and fits the log-probs."""
    with torch.no_grad():
        lived, scored, _ = _lived_and_scored(e)
        entropy, all_log_probs = scored.outputs.get("entropy"), scored.outputs.get("full_log_probs")
        if entropy is None:
            raise NotOfferedError("scoring gives no entropy")
        if "entropy" in lived.outputs:
            size = float(differences(lived.outputs, scored.outputs, ("entropy",)).max())
            tally.still(SEQUENCE, size, f"entropy scored again is {size:.2g} away from that of acting")
        if all_log_probs is None:
            raise NotOfferedError("scoring gives no log-probs of every choice that entropy could be compared with")
        probabilities = all_log_probs.double().exp()
        if not torch.allclose(probabilities.sum(-1), torch.ones((), dtype=torch.double), atol=1e-2):
            raise NotOfferedError("its actions are no single choice, so entropy cannot be summed over them")
        fitting = {"entropy": torch.special.entr(probabilities).sum(-1)}
        size = float(differences(fitting, {"entropy": entropy}).max())
        tally.still(SEQUENCE, size, f"entropy is {size:.2g} away from that of the log-probs it comes with")


@CHECKS(
    cost="Stored start states are damaged by the first epoch; every later epoch replays from the wrong memory.",
    mend="Do not write into the state you are given: clone before zero_() or index assignment.",
    root=2,
)
def start_states_are_not_changed(e: Examination, tally: Tally) -> None:
    """Every call leaves the state, observations and flags that it is given as they were."""
    with torch.no_grad():
        for call in e.probe.calls:
            script = e.probe.script(ends=AWKWARD_ENDS)
            actions = e.probe.run(STEPPING, script).outputs.get(ACTIONS)
            given = (*script.start, script.obs, script.first)
            kept = [x.clone() for x in given]
            e.probe.run(call, script, actions, copies=False)
            changed = [i for i, (x, y) in enumerate(zip(given, kept, strict=True)) if not torch.equal(x, y)]
            names = [*(f"tensor {i} of the start state" for i in range(len(script.start))), "observations", "flags"]
            tally.holds(call, not changed, f"{call}: changed {', '.join(names[i] for i in changed)} in place")
        script = e.probe.script(T=2)
        _, after = e.subject.step(script.obs[0], script.start, script.first[0])
        kept = copied(after)
        e.subject.step(script.obs[1], after, script.first[1])
        same = all(torch.equal(x, y) for x, y in zip(after, kept, strict=True))
        tally.holds(STEPPING, same, f"{STEPPING}: a state that had been handed back was changed by the next step")


@CHECKS(
    cost="Each update moves the memory that acting continues from: agents lose their thread after every batch.",
    mend="Score from a state that is handed in; write memory only when acting.",
    look_at="sequence",
    quick=True,
)
def learning_leaves_memory_alone(e: Examination, tally: Tally) -> None:
    """Scoring sequences does not touch the memory that acting keeps."""
    e.has_state()
    e.probe.needs(ACTING)
    e.probe.needs(SEQUENCE)
    e.probe.run(ACTING, e.probe.script(T=3))
    kept = copied(e.subject.get_memory())
    script = e.probe.script(ends=AWKWARD_ENDS)
    for form, doing in ((SEQUENCE, "scoring a sequence"), (SCORING, "scoring that is told how episodes ended")):
        with suppress(NotOfferedError):
            e.probe.run(form, script, draw=1)
            tally.still(form, *e.moved_memory(kept, doing))


@CHECKS(
    cost="Two equal calls differ: parity is lost, and so is every comparison. What other checks found may be its echo.",
    mend="Look for what is kept on the policy itself from call to call (self.last = ...) and belongs into the state; for dropout, "
    "noise and samples drawn in forward. What is drawn has to be put out as `actions`, and its log-prob as `log_prob`.",
    quick=True,
    root=2,
)
def equal_calls_are_equal(e: Examination, tally: Tally) -> None:
    """Two equal calls give the same, whatever the random numbers and whatever came between; only the drawn action may differ."""
    moved: list[str] = []  # by single steps and sequences: what acting changes includes its memory
    with torch.no_grad():
        for form in e.probe.forms:
            script, between = e.probe.script(ends=AWKWARD_ENDS), e.probe.script(T=3)
            actions = e.probe.run(STEPPING, script).outputs.get(ACTIONS)
            one = e.probe.run(form, script, actions, draw=1).outputs
            kept = {name: x.clone() for name, x in kept_tensors(e.subject)} if form != ACTING else {}
            e.probe.run(form, between)
            now = dict(kept_tensors(e.subject))
            moved += [name for name, x in kept.items() if name not in now or not x.equal(now[name])]
            two = e.probe.run(form, script, actions, draw=2).outputs
            size = e.apart_whatever_was_drawn(one, two)
            named = [*dict.fromkeys(moved)][:3]
            hint = f"; what changed with a call: {', '.join(named)}" if named else ""
            tally.still(form, size, f"{form}: two equal calls are {size:.2g} apart{hint}")


@CHECKS(
    cost="Workers and servers act in threads of their own: there the policy is another one than the one that learns.",
    mend="Keep modes and states in arguments. What is set for a thread (threading.local, a context manager) or looked up in a "
    "global is not there, or somebody else's, in another thread.",
)
def another_thread_gives_the_same(e: Examination, tally: Tally) -> None:
    """An equal call from another thread gives the same."""
    with ThreadPoolExecutor(max_workers=1) as thread:
        for form in e.probe.forms:
            script = e.probe.script(ends=AWKWARD_ENDS)

            def outputs(form: str = form, script: Script = script) -> Outputs:
                with torch.no_grad():
                    return e.probe.run(form, script).outputs

            size = float(differences(outputs(), thread.submit(outputs).result()).max())
            tally.still(form, size, f"{form}: an equal call from another thread is {size:.2g} away")


@CHECKS(
    cost="Acting in evaluation mode and learning in training mode (or the reverse) are two policies.",
    mend="Leave out dropout and batch statistics: sooner or later a recurrent policy acts in one mode and learns in the other.",
)
def both_modes_agree(e: Examination, tally: Tally) -> None:
    """train() and eval() give the same outputs."""
    module = e.subject.module
    if module is None:
        raise NotOfferedError("it does not say where its weights are")
    with torch.no_grad(), modes_kept(module):
        for form in e.probe.pure_forms:
            script = e.probe.script(ends=AWKWARD_ENDS)
            actions = e.probe.run(STEPPING, script).outputs.get(ACTIONS)
            module.train()
            training = e.probe.run(form, script, actions, draw=1).outputs
            module.eval()
            size = float(differences(training, e.probe.run(form, script, actions, draw=1).outputs).max())
            tally.still(form, size, f"{form}: outputs in train() and eval() are {size:.2g} apart")
