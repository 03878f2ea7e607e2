"""Checks of gradients: they flow through time, but not across episode starts, and reach every trainable parameter."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace

import torch
from torch import Tensor, nn

from holdfast.audit.compare import differences, learned_outputs, policy_outputs
from holdfast.audit.context import Context
from holdfast.audit.dependence import differentiate, random_projection
from holdfast.audit.findings import SAME, Register, Tally
from holdfast.audit.probe import Probe
from holdfast.audit.script import AWKWARD_RESETS, CHAOTIC, LONG, MANY, SEQUENCE, STATE, STEP, Script
from holdfast.audit.sensitivity import perturb, redraw_weights, values_restored
from holdfast.audit.subject import ACROSS_EPISODES, NotOfferedError, Outputs
from holdfast.errors import name_some

CHECKS = Register()
REACH = (0, 1, 2, 3, 4, 5, 9, 17, 33, 69)  # steps to check: also just after usual chunks (8, 16, 32)
# Allowed difference, relative to the largest gradient of the weight, or to 1% of the largest of all weights if larger:
# gradients that nearly cancel have large rounding errors.
SAME_GRADIENT = 1e-2
TRIES = 8  # different scripts and weights, to find a gradient for each parameter
NUM_NAMED = 4  # parameters without a gradient that are named
EXPLODING = 1e3  # gradients this large may overflow a few steps later


@CHECKS(look_at="sequence", excused_by=ACROSS_EPISODES)
def gradients_stop_at_reset(ctx: Context, tally: Tally) -> None:
    """The gradient across an episode start is exactly zero.

    Cost: The loss of one episode trains what was remembered in the previous one: noise that grows with the horizon.
    Fix: Multiply the state by (1 - first) or select zeros; do not subtract a detached copy.
    """
    for form in ctx.forms_with_gradients():
        ctx.expect_no_gradient(tally, form, ctx.gradients(form).across_reset)


@CHECKS(needs=(STATE,), look_at="sequence", excused_by=("memoryless", "truncated_gradients"), quick=True)
def gradients_flow_through_time(ctx: Context, tally: Tally) -> None:
    """Outputs have a gradient with respect to the earlier state and observations that they depend on.

    Cost: Nothing is learned through time: the policy has memory, but never learns what to store in it.
    Fix: Detach the state between calls only, never between the steps of a sequence. If a state
    tensor is only a mask or a counter, list it in no_gradient.
    """
    form = SEQUENCE if SEQUENCE in ctx.forms else STEP  # act may detach between steps
    numbers, sizes, gradients = ctx.start_state_influence(form, REACH)
    if not (sizes > SAME).any():
        raise NotOfferedError("no output depends on a state tensor that could have a gradient")
    before = 0.0
    for t, size, gradient in zip(REACH, sizes.amax(0), gradients.amax(0), strict=True):
        message = f"the start state moves outputs of step {t} by {size:.2g}, but gets no gradient from them"
        tally.expect(form, not (size > SAME and gradient == 0), message)
        message = (
            f"outputs of step {t} give the start state the gradient {gradient} (an earlier step gave {before:.2g})"
        )
        tally.expect(form, bool(gradient.isfinite()) or not before < EXPLODING, message)
        before = float(gradient)
    for i, size, gradient in zip(numbers, sizes.amax(1), gradients.amax(1), strict=True):
        message = f"{ctx.subject.state_name(i)} moves outputs, but gets no gradient from them"
        tally.expect(form, not (size > SAME and gradient == 0), message)
    _expect_gradient_by_observations(ctx, tally, form)


def _expect_gradient_by_observations(ctx: Context, tally: Tally, form: str) -> None:
    """Expect at least one observation to get a gradient from a later output that it affects.

    Not every observation has to: it may be an integer code, which gets no gradient from its own step's output either,
    or a selective memory may ignore it.
    """
    seen, found = ctx.changes(form), ctx.gradients(form)
    carried = seen.later & (seen.size > SAME) & found.measured
    for t in range(len(seen.first)):
        for b in range(seen.first.shape[1]):
            carried[t + 1, b] &= bool(found.size[t + 1, b, t, b] > 0)
    if carried.any():
        size = float(seen.size[carried].max())
        message = f"observations move later outputs by up to {size:.2g}, but get no gradient from any later output"
        tally.expect(form, bool((found.size[carried] > 0).any()) or _any_later_gradient(ctx, form), message)


@torch.enable_grad()
def _any_later_gradient(ctx: Context, form: str) -> bool:
    """Try many more observations, and return whether any of them gets a gradient from a later output."""
    for _ in range(3):
        script = ctx.script(T=4, B=MANY)
        obs = script.obs.clone().requires_grad_()
        total, _ = ctx.projected_outputs(form, replace(script, obs=obs), None)
        (gradient,) = differentiate(total[-1].sum(), [obs])
        if gradient[:-1].any():
            return True
    return False


@CHECKS(needs=(STATE, SEQUENCE), look_at="sequence", excused_by=("truncated_gradients",))
def sequence_gradients_equal_steps(ctx: Context, tally: Tally) -> None:
    """Gradients through one call of a sequence equal those through the same steps one by one.

    Cost: Updates use wrong gradients: part of what memory has to carry is learned weakly or never.
    Fix: Look for a detach() that only sequence has: at some steps, on some units, or on first observations. If
    gradients are cut on purpose, use --declare truncated_gradients.
    """
    if STEP not in ctx.forms_with_gradients():
        raise NotOfferedError("the outputs of step() have no gradients")
    through_time = ctx.gradients(STEP).from_start_state
    through_time[:, :, 0] = False
    if not ctx.gradients(STEP).largest(through_time)[0]:
        raise NotOfferedError("step returns a state without gradients")
    resets = AWKWARD_RESETS if ctx.learning_resets else {}
    _compare_gradients(ctx, tally, lambda: ctx.script(resets=resets, initial=True), SAME_GRADIENT)
    limit = SAME_GRADIENT + 100 * ctx.rounding_growth(ctx.script(T=LONG, B=2, initial=True))
    if limit < CHAOTIC:
        _compare_gradients(ctx, tally, lambda: ctx.script(T=LONG, B=2, initial=True), limit)
    else:
        tally.remark = f"{LONG} steps could not be compared, because rounding errors grow too large"


def _compare_gradients(ctx: Context, tally: Tally, make_script: Callable[[], Script], limit: float) -> None:
    """Compare gradients. If they differ, repeat with two other inputs: one difference may be rounding at a ReLU's kink."""
    script = make_script()
    apart = _gradient_differences(ctx, script)
    for _ in range(2):
        if max(apart.values()) > limit:
            script = make_script()
            apart = _gradient_differences(ctx, script)
    T, B = script.first.shape
    for name, size in apart.items():
        message = f"in one call of {T} steps and {B} slots, the gradient of {name} is off by {size:.2g} of its size"
        tally.expect_unchanged(SEQUENCE, size, message, limit)


@torch.enable_grad()
def _gradient_differences(ctx: Context, script: Script) -> dict[str, float]:
    """Return, for each weight, the relative difference between its gradients through a sequence and through steps."""
    weights = () if ctx.subject.module is None else ctx.subject.module.named_parameters()
    sources: dict[str, Tensor] = {name: x for name, x in weights if x.requires_grad}
    if script.obs.is_floating_point():
        script = replace(script, obs=script.obs.clone().requires_grad_())
        sources["the observations"] = script.obs
    if not sources:
        raise NotOfferedError("no `module` is set, and observations are not real numbers, so nothing has a gradient")
    stepped = ctx.run(STEP, script)
    if stepped.actions is not None and stepped.actions.requires_grad:
        raise NotOfferedError(
            "step() samples actions that have a gradient, but sequence() scores these actions without one"
        )
    whole = ctx.run(SEQUENCE, script, stepped.actions)
    shared = {name: y for name, y in whole.outputs.items() if y.requires_grad and name in stepped.outputs}
    names = _policy_loss_outputs({name: y for name, y in shared.items() if stepped.outputs[name].requires_grad})
    if not names:
        raise NotOfferedError("step and sequence share no output that has a gradient")
    totals = (random_projection({name: trace.outputs[name] for name in names}).sum() for trace in (stepped, whole))
    one, other = (differentiate(total, [*sources.values()]) for total in totals)
    most = max(float(g.abs().max()) for g in one)
    return {
        name: float((g - h).abs().max()) / max(float(g.abs().max()), 1e-2 * most, 1e-30)
        for name, g, h in zip(sources, one, other, strict=True)
    }


@CHECKS(needs=(SEQUENCE,), look_at="sequence", quick=True)
def learning_has_gradients(ctx: Context, tally: Tally) -> None:
    """Log-probs, values and entropy have gradients, and every weight that changes log-probs gets one from them.

    Cost: Part of the policy is never trained, while losses and learning curves look normal.
    Fix: Look for detach(), .data, .item() and torch.no_grad() on the way from weights to log-probs, values and entropy.
    Freeze weights that should not learn with requires_grad_(False).
    """
    script, other = (ctx.script(resets=AWKWARD_RESETS) for _ in range(2))
    actions = ctx.run(STEP, script).actions
    with torch.enable_grad():
        outputs = ctx.run(SEQUENCE, script, actions).outputs
        policy = {name: outputs[name] for name in _policy_loss_outputs(outputs) if outputs[name].requires_grad}
        total = random_projection(policy).sum() if policy else None
    elsewhere = ctx.run(SEQUENCE, other, actions).outputs
    for name in learned_outputs(outputs):
        size = float(differences(outputs, elsewhere, (name,)).max())
        message = f"{name} has no gradient, although other observations and start states change it by {size:.2g}"
        tally.expect(SEQUENCE, outputs[name].requires_grad or size <= SAME, message)
    if ctx.subject.module is None:
        tally.remark = "gradients of weights were not checked, because no `module` is set"
        return
    if total is None:
        return  # reported above
    weights = {name: x for name, x in ctx.subject.module.named_parameters() if x.requires_grad}
    found = differentiate(total, [*weights.values()])
    invalid = [name for name, g in zip(weights, found, strict=True) if not g.isfinite().all()]
    message = f"{name_some(invalid)} gets a NaN or infinite gradient from {', '.join(policy)}"
    tally.expect(SEQUENCE, not invalid, message)
    zero = [name for name, g in zip(weights, found, strict=True) if not g.any()]
    lost = [name for name in zero if _depends_on(ctx, script, actions, policy, weights[name])]
    message = f"{', '.join(policy)} depends on {name_some(lost)}, but without a gradient"
    tally.expect(SEQUENCE, not lost, message)


def _policy_loss_outputs(outputs: Outputs) -> tuple[str, ...]:
    """Return the names of the outputs that train the policy, except the value: a critic may read detached memory."""
    return ("log_prob",) if "log_prob" in outputs else policy_outputs(outputs)


def _depends_on(ctx: Context, script: Script, actions: Tensor | None, usual: Outputs, weight: nn.Parameter) -> bool:
    """Whether a change of this weight moves these outputs."""
    with values_restored([weight]):
        perturb([weight], ctx.generator)
        return float(differences(usual, ctx.run(SEQUENCE, script, actions).outputs).max()) > SAME


@CHECKS(look_at="sequence", excused_by=("memoryless",))
def parameters_get_gradients(ctx: Context, tally: Tally) -> None:
    """Every trainable parameter gets a gradient from log-probs, values or entropy.

    Cost: Part of the network is never trained, while losses and learning curves look normal.
    Fix: The parameter is unused, detached, or hidden by a method or attribute of the same name. Use it in forward or
    remove it. Freeze parameters that should not learn with requires_grad_(False).
    """
    form = SEQUENCE if SEQUENCE in ctx.forms else STEP
    module, weights = ctx.require_module(), ctx.trainable_weights()
    missing = weights
    with values_restored(module.parameters()):
        for turn in range(TRIES):
            probe = ctx if turn == 0 else Probe(ctx.subject, ctx.seed + turn)
            # A gradient can be zero by accident: a later layer may start at zero, or all units of a ReLU may be off.
            if turn % 2:
                perturb(weights.values(), probe.generator)
            elif turn:
                redraw_weights(module, 1.0 + 0.5 * turn, probe.seed)
            reached = _parameters_with_gradient(probe, form, missing.values(), initial=turn % 3 == 1)
            missing = {name: x for name, x in missing.items() if x not in reached}
            if not missing:
                break
    message = f"no gradient reaches {name_some(missing, NUM_NAMED)}"
    outputs = ctx.output_names[form]
    if missing and ("value" not in outputs or len(outputs) < 2):
        raise NotOfferedError(
            f"{message}, but {form} returns only {', '.join(outputs)}, and an output that is not returned may use it"
        )
    tally.expect(form, not missing, f"{message}, in {TRIES} tries with different observations and weights")


@torch.enable_grad()  # around probe.script too, because an initial state may be learned
def _parameters_with_gradient(
    probe: Probe, form: str, weights: Iterable[nn.Parameter], initial: bool
) -> set[nn.Parameter]:
    """Return the weights that get a non-zero gradient on one script with resets."""
    weights = [*weights]
    outputs = probe.run(form, probe.script(B=MANY, resets=AWKWARD_RESETS, initial=initial)).outputs
    learned = {name: outputs[name] for name in learned_outputs(outputs) if outputs[name].requires_grad}
    gradients = differentiate(random_projection(learned).sum(), weights)
    return {x for x, gradient in zip(weights, gradients, strict=True) if gradient.any()}
