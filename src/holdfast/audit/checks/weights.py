"""Weights: no call changes them, an update reaches every form, and a checkpoint loads with any number of slots."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import nn

from holdfast.audit.checks.register import Register
from holdfast.audit.compare import differences
from holdfast.audit.examination import Examination
from holdfast.audit.failing import UnusableError
from holdfast.audit.findings import SAME, Tally
from holdfast.audit.holdings import copies_of_tensors, weights_of
from holdfast.audit.probe import Probe
from holdfast.audit.script import ACTING, AWKWARD_ENDS, STEPPING, Script
from holdfast.audit.subject import ACTIONS, NotOfferedError, Outputs
from holdfast.audit.waking import moved

CHECKS = Register()


@CHECKS(
    cost="The policy that learns is not the one that acted: statistics moved in between, so ratios are not 1.",
    mend="Move running statistics between batches only, never in forward.",
    quick=True,
    root=2,
)
def calls_change_no_weights(e: Examination, tally: Tally) -> None:
    """No call, to act, to score or to look, changes weights or running statistics."""
    names = weights_of(e.probe).keys()
    with torch.no_grad():
        for call in e.probe.calls:
            script = e.probe.script(ends=AWKWARD_ENDS)
            actions = e.probe.run(STEPPING, script).outputs.get(ACTIONS)
            kept = copies_of_tensors(e.subject.module)
            e.probe.run(call, script, actions)
            now = copies_of_tensors(e.subject.module)
            changed = [name for name in names if name not in now or not torch.equal(now[name], kept[name])]
            tally.holds(call, not changed, f"{call}: changed {', '.join(changed[:3])} of the policy")


@CHECKS(
    cost="Updates reach only part of what acts or learns: the two drift apart with every update, and before the first nothing shows.",
    mend="Compute from the weights in every call. Look for copies, caches and compiled or scripted forms that were made once.",
    look_at="sequence",
)
def new_weights_are_used(e: Examination, tally: Tally) -> None:
    """After an update every form goes by the new weights, and they still agree."""
    module = e.subject.module
    if module is None:
        raise NotOfferedError("it does not say where its weights are")
    weights = {name: weight for name, weight in module.named_parameters() if weight.requires_grad}
    if not weights:
        raise NotOfferedError("it has no weights that learn")
    script = e.probe.script(ends=AWKWARD_ENDS if e.learning_resets else {}, blank=True)
    before, after = _by_form(e, script, ()), _by_form(e, script, [*weights.values()])
    for form in e.probe.forms:
        size = _apart(e, before[form], after[form])
        tally.moves(form, size, f"{form}: other weights change nothing ({size:.1e})")
        if _apart(e, before[STEPPING], before[form]) <= SAME + 10 * e.rounding_of_actions(
            script, before[STEPPING].get(ACTIONS)
        ):
            size = _apart(e, after[STEPPING], after[form])
            said = f"{form}: once weights have moved, outputs are {size:.2g} away from those of single steps"
            tally.still(form, size, said, SAME + 10 * e.rounding_of_actions(script, after[STEPPING].get(ACTIONS)))
        else:
            _compare_answers(e, tally, form, script, weights, before)


def _compare_answers(
    e: Examination,
    tally: Tally,
    form: str,
    script: Script,
    weights: dict[str, nn.Parameter],
    before: dict[str, Outputs],
) -> None:
    """Of a form that never agreed with single steps: does one of them answer to a weight that the other does not answer to?"""
    shared = {of: {name: before[of][name] for name in before[of] if name in before[form]} for of in (STEPPING, form)}
    for name, weight in weights.items():
        now = _by_form(e, script, [weight])
        of_steps, of_form = (_apart(e, shared[of], now[of]) for of in (STEPPING, form))
        said = f"{form}: {name} moves outputs by {of_form:.2g}, and those of single steps by {of_steps:.2g}"
        tally.holds(form, not (max(of_steps, of_form) > SAME and min(of_steps, of_form) == 0), said)


def _by_form(e: Examination, script: Script, weights: Sequence[nn.Parameter]) -> dict[str, Outputs]:
    """What each form puts out while these weights are others."""
    with torch.no_grad(), moved(weights, e.probe.generator):
        return {form: e.probe.run(form, script).outputs for form in e.probe.forms}


def _apart(e: Examination, a: Outputs, b: Outputs) -> float:
    """Actions count: drawn by other weights from the same numbers, they are others."""
    return float(differences(a, b, actions_too=e.probe.actions_repeat).max())


@CHECKS(
    cost="A checkpoint only loads with the number of environments it was trained with.",
    mend="Keep memory out of buffers and parameters (or register it with persistent=False).",
    look_at="rebuild",
)
def weights_load_with_other_slots(e: Examination, tally: Tally) -> None:
    """Weights saved after acting with some slots load into a policy that acts with more, and act the same."""
    if e.subject.module is None:
        raise NotOfferedError("it does not say where its weights are")
    other = e.subject.rebuild()
    if other.module is None:
        raise UnusableError("rebuild gave a subject without module.")
    with torch.no_grad():
        script = e.probe.script(T=2, B=5, blank=True)
        if ACTING in e.probe.forms:
            e.probe.run(ACTING, e.probe.script(T=2, B=3))
            other.set_memory(other.initial_state(5))
            other.act(script.obs[0], script.first[0], script.first[0], torch.arange(5))
        saved = {name: x.clone() for name, x in e.subject.module.state_dict().items()}
        try:
            other.module.load_state_dict(saved)
        except RuntimeError as error:
            tally.holds(STEPPING, False, f"weights saved with 3 slots do not load with 5: {_short(error)}")
            return
        mine = e.probe.run(STEPPING, script)
        theirs = Probe(other, e.probe.seed).run(STEPPING, script)
        size = float(differences(mine.outputs, theirs.outputs).max())
        tally.still(
            STEPPING, size, f"after loading, outputs are {size:.2g} away from those of the policy that was saved"
        )


def _short(error: Exception) -> str:
    lines = str(error).strip().splitlines()
    return lines[-1].strip()[:160]
