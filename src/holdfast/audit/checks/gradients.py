"""Gradients: learning has them by whatever it should learn, through time, and none across an episode's end."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import torch
from torch import Tensor, nn

from holdfast.audit.checks.register import Register
from holdfast.audit.compare import differences, of_the_policy
from holdfast.audit.dependence import projected
from holdfast.audit.examination import Examination
from holdfast.audit.findings import SAME, Tally
from holdfast.audit.script import AWKWARD_ENDS, LONG, MANY, SEQUENCE, STEPPING, TOO_WILD, Script
from holdfast.audit.subject import ACROSS_EPISODES, ACTIONS, NotOfferedError, Outputs
from holdfast.audit.waking import moved

CHECKS = Register()
# Steps at which gradients are looked for: memory is cut into chunks of 8, 16, 32.
REACH = (0, 1, 2, 3, 4, 5, 9, 17, 33, 69)
SAME_GRADIENT = 1e-2  # of the largest by a weight, or of a hundredth of the largest by any: sums that cancel round far
EXPLODING = 1e3  # where gradients have grown to this, they may well overflow a few steps on


@CHECKS(
    cost="Gradients of one episode change how the one before it was remembered: noise that grows with the horizon.",
    mend="Multiply the state by (1 - first), or select zeros; do not subtract a detached copy.",
    look_at="sequence",
    excused_by=ACROSS_EPISODES,
)
def gradients_stop_at_a_reset(e: Examination, tally: Tally) -> None:
    """The gradient across an episode start is exactly zero."""
    for form in e.forms_with_gradients():
        e.no_gradient(tally, form, e.gradients(form).across_a_start, ", across an episode start")


@CHECKS(
    cost="Nothing is learned across time: the policy remembers, but never learns what to remember.",
    mend="Detach the state between calls only, never between the steps of one sequence. A tensor of the state that only selects "
    "(a mask) is named in no_gradient.",
    look_at="sequence",
    excused_by=("memoryless", "truncated_gradients"),
    quick=True,
)
def gradients_flow_within_an_episode(e: Examination, tally: Tally) -> None:
    """Whatever memory carries to a later output, learning has a gradient by."""
    e.has_state()
    form = SEQUENCE if SEQUENCE in e.probe.forms else STEPPING  # acting may well be detached from step to step
    numbers, sizes, gradients = e.reach_of_the_start(form, REACH)
    if not (sizes > SAME).any():
        raise NotOfferedError("no output moves with a tensor of the start state that could have a gradient")
    before = 0.0
    for t, size, gradient in zip(REACH, sizes.amax(0), gradients.amax(0), strict=True):
        said = f"{form}: outputs of step {t} move by {size:.2g} with the start state, and have no gradient by it"
        tally.holds(form, not (size > SAME and gradient == 0), said)
        said = (
            f"{form}: the gradient of outputs of step {t} by the start state is {gradient}, and was {before:.2g} before"
        )
        tally.holds(form, bool(gradient.isfinite()) or not before < EXPLODING, said)
        before = float(gradient)
    for i, size, gradient in zip(numbers, sizes.amax(1), gradients.amax(1), strict=True):
        said = f"{form}: outputs have no gradient by tensor {i} of the start state"
        tally.holds(form, not (size > SAME and gradient == 0), said)
    _observations_are_carried(e, tally, form)


def _observations_are_carried(e: Examination, tally: Tally, form: str) -> None:
    """Some later output has a gradient by some observation that moves it.

    Not each: one may be a code, which has no gradient where it is seen, either, or not be written down by a memory that is
    choosy.
    """
    seen, found = e.changes(form), e.gradients(form)
    carried = seen.later & (seen.size > SAME) & found.measured
    for t in range(len(seen.first)):
        for b in range(seen.first.shape[1]):
            carried[t + 1, b] &= bool(found.size[t + 1, b, t, b] > 0)
    if carried.any():
        size = float(seen.size[carried].max())
        said = f"{form}: observations move later outputs by up to {size:.2g}, and none of those has a gradient by one"
        has_one = bool((found.size[carried] > 0).any()) or _any_observation_is_carried(e, form)
        tally.holds(form, has_one, said)


def _any_observation_is_carried(e: Examination, form: str) -> bool:
    """The same with every observation there is: most may be none that a memory writes down."""
    for _ in range(3):
        script = e.probe.script(T=4, B=MANY)
        obs = script.obs.clone().requires_grad_()
        total, _ = e.mixed_outputs(form, replace(script, obs=obs), None)
        (gradient,) = torch.autograd.grad(total[-1].sum(), [obs], allow_unused=True)
        if gradient is not None and gradient[:-1].any():
            return True
    return False


@CHECKS(
    cost="Weights move by something else than what the policy did: part of what memory carries is learned weakly, or never.",
    mend="Look for detach() in the form for sequences that single steps do not have: of some steps, of some units, of what opens an "
    "episode. Gradients that are cut on purpose: --declare truncated_gradients.",
    look_at="sequence",
    excused_by=("truncated_gradients",),
)
def sequences_have_the_gradients_of_steps(e: Examination, tally: Tally) -> None:
    """Gradients of the policy back through a sequence are those back through as many single steps."""
    e.has_state()
    e.probe.needs(SEQUENCE)
    if STEPPING not in e.forms_with_gradients():
        raise NotOfferedError("its single steps record no gradients")
    through_time = e.gradients(STEPPING).from_the_start
    through_time[:, :, 0] = False
    if not e.gradients(STEPPING).largest(through_time)[0]:
        raise NotOfferedError("its single steps hand on their state without a gradient")
    ends = AWKWARD_ENDS if e.learning_resets else {}
    _compare_gradients(e, tally, lambda: e.probe.script(ends=ends, blank=True), SAME_GRADIENT)
    limit = SAME_GRADIENT + 100 * e.rounding_grows_to(e.probe.script(T=LONG, B=2, blank=True))
    if limit < TOO_WILD:
        _compare_gradients(e, tally, lambda: e.probe.script(T=LONG, B=2, blank=True), limit)
    else:
        tally.remark = f"{LONG} steps could not be compared: rounding alone grows too far in them"


def _compare_gradients(e: Examination, tally: Tally, script: Callable[[], Script], limit: float) -> None:
    """With up to three scripts: a unit at the very edge of a ReLU rounds to either side of it, and that is no bug."""
    shown = script()
    apart = _gradients_apart(e, shown)
    for _ in range(2):
        if max(apart.values()) > limit:
            shown = script()
            apart = _gradients_apart(e, shown)
    T, B = shown.first.shape
    for name, size in apart.items():
        said = f"{T} steps of {B} slots at once have a gradient by {name} that is {size:.2g} of it away from that of single steps"
        tally.still(SEQUENCE, size, f"{SEQUENCE}: {said}", limit)


def _gradients_apart(e: Examination, script: Script) -> dict[str, float]:
    """By weight: how far its gradient through a sequence is from that through single steps, next to its size."""
    module = e.subject.module
    weights = module.named_parameters() if module is not None else ()
    sources: dict[str, Tensor] = {name: x for name, x in weights if x.requires_grad}
    if script.obs.is_floating_point():
        script = replace(script, obs=script.obs.clone().requires_grad_())
        sources["the observations"] = script.obs
    if not sources:
        raise NotOfferedError("it does not say where its weights are, and its observations have no gradients")
    with torch.enable_grad():
        stepped = e.probe.run(STEPPING, script).outputs
        if ACTIONS in stepped and stepped[ACTIONS].requires_grad:
            raise NotOfferedError("its actions are drawn with a gradient, which scoring them has not")
        whole = e.probe.run(SEQUENCE, script, stepped.get(ACTIONS)).outputs
    shared = {
        name: y for name, y in whole.items() if name in stepped and stepped[name].requires_grad and y.requires_grad
    }
    names = _taught_by(shared)
    if not names:
        raise NotOfferedError("single steps and sequences put out nothing in common that has a gradient")
    one, other = (  # a learned start state is behind both
        torch.autograd.grad(
            projected({name: y[name] for name in names}).sum(),
            [*sources.values()],
            retain_graph=True,
            allow_unused=True,
        )
        for y in (stepped, whole)
    )
    zeros = [torch.zeros_like(x) for x in sources.values()]
    pairs = [(z if g is None else g, z if h is None else h) for z, g, h in zip(zeros, one, other, strict=True)]
    most = max(float(g.abs().max()) for g, _ in pairs)
    return {
        name: float((g - h).abs().max()) / max(float(g.abs().max()), 1e-2 * most, 1e-30)
        for name, (g, h) in zip(sources, pairs, strict=True)
    }


@CHECKS(
    cost="Part of the policy is never learned, while losses and curves look as if it was.",
    mend="Look for detach(), .data, .item() and torch.no_grad() on the way from the weights to log-probs, values and entropies. "
    "Weights that are not to be learned are frozen with requires_grad_(False).",
    look_at="sequence",
    quick=True,
)
def learning_has_gradients(e: Examination, tally: Tally) -> None:
    """What learning is scored by has a gradient, and the policy has one by every weight that moves it."""
    e.probe.needs(SEQUENCE)
    script, other = e.probe.script(ends=AWKWARD_ENDS), e.probe.script(ends=AWKWARD_ENDS)
    actions = e.probe.run(STEPPING, script).outputs.get(ACTIONS)
    with torch.enable_grad():
        outputs = e.probe.run(SEQUENCE, script, actions).outputs
    with torch.no_grad():
        elsewhere = e.probe.run(SEQUENCE, other, actions).outputs
    for name in _learned_from(outputs):
        size = float(differences(outputs, elsewhere, (name,)).max())
        said = f"{SEQUENCE}: {name} moves by {size:.2g} with observations and start state, and has no gradient"
        tally.holds(SEQUENCE, outputs[name].requires_grad or size <= SAME, said)
    if e.subject.module is None:
        tally.remark = "by which weights was not looked at, because it does not say where they are"
        return
    policy = {name: outputs[name] for name in _taught_by(outputs) if outputs[name].requires_grad}
    if not policy:
        return  # said above
    weights = {name: x for name, x in e.subject.module.named_parameters() if x.requires_grad}
    found = torch.autograd.grad(projected(policy).sum(), [*weights.values()], allow_unused=True)
    wrong = [name for name, g in zip(weights, found, strict=True) if g is not None and not g.isfinite().all()]
    said = f"{SEQUENCE}: the gradient of {', '.join(policy)} by {', '.join(wrong[:3])} is not a number"
    tally.holds(SEQUENCE, not wrong, said)
    untouched = [name for name, g in zip(weights, found, strict=True) if g is None or not g.any()]
    lost = [name for name in untouched if _moves(e, script, actions, policy, weights[name])]
    said = f"{SEQUENCE}: {', '.join(policy)} moves with {', '.join(lost[:3])}, and has no gradient by it"
    tally.holds(SEQUENCE, not lost, said + (f" (and {len(lost) - 3} more)" if len(lost) > 3 else ""))


def _learned_from(outputs: Outputs) -> list[str]:
    """Names of outputs that enter a loss; without log-probs it is not known which do, and each is taken."""
    names = ("log_prob", "value", "entropy")
    return [name for name in outputs if name != ACTIONS and (name in names or "log_prob" not in outputs)]


def _taught_by(outputs: Outputs) -> tuple[str, ...]:
    """Names of what the policy is learned by. Values are not: they may well be read off memory without teaching it."""
    return ("log_prob",) if "log_prob" in outputs else of_the_policy(outputs)


def _moves(e: Examination, script: Script, actions: Tensor | None, usual: Outputs, weight: nn.Parameter) -> bool:
    """Whether these outputs answer to this weight."""
    with torch.no_grad(), moved([weight], e.probe.generator):
        return float(differences(usual, e.probe.run(SEQUENCE, script, actions).outputs).max()) > SAME
