"""Parameters: learning gives every trainable one a gradient."""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import nn

from holdfast.audit.checks.register import Register
from holdfast.audit.compare import learned_outputs
from holdfast.audit.context import Context
from holdfast.audit.dependence import random_projection
from holdfast.audit.findings import Tally
from holdfast.audit.probe import Probe
from holdfast.audit.script import AWKWARD_RESETS, MANY, SEQUENCE, STEP
from holdfast.audit.sensitivity import perturb, redraw_weights, values_restored
from holdfast.audit.subject import NotOfferedError

CHECKS = Register()
TRIES = 8
NUM_NAMED = 4


@CHECKS(
    cost="Part of the network is never trained, while losses and learning curves look normal.",
    fix="Use the parameter in forward or remove it: it is unused, detached, or hidden by a method or attribute of the same "
    "name. Freeze parameters that should not learn with requires_grad_(False).",
    look_at="sequence",
    excused_by=("memoryless",),  # recurrent weights of a policy that always starts from zeros
)
def parameters_get_gradients(ctx: Context, tally: Tally) -> None:
    """Every trainable parameter gets a gradient from log-probs, values or entropy."""
    form = SEQUENCE if SEQUENCE in ctx.probe.forms else STEP
    module, weights = ctx.require_module(), ctx.trainable_weights()
    missing = weights
    with values_restored(module.parameters()):
        for turn in range(TRIES):
            probe = ctx.probe if turn == 0 else Probe(ctx.subject, ctx.probe.seed + turn)
            # A gradient can be zero by accident: a layer after it starts at zero, or all units of a ReLU are off.
            if turn % 2:
                perturb(weights.values(), probe.generator)
            elif turn:
                redraw_weights(module, 1.0 + 0.5 * turn, probe.seed)
            reached = _parameters_with_gradient(probe, form, missing.values(), initial=turn % 3 == 1)
            missing = {name: x for name, x in missing.items() if x not in reached}
            if not missing:
                break
    more = f" and {len(missing) - NUM_NAMED} more" if len(missing) > NUM_NAMED else ""
    message = f"no gradient reaches {', '.join([*missing][:NUM_NAMED])}{more}"
    outputs = ctx.probe.output_names[form]
    if missing and ("value" not in outputs or len(outputs) < 2):
        raise NotOfferedError(f"{message}, but {form} returns only {', '.join(outputs)}: other outputs may use them")
    tally.expect(form, not missing, f"{message}, in {TRIES} scripts with different weights")


@torch.enable_grad()  # for the script too: an initial state may be learned
def _parameters_with_gradient(
    probe: Probe, form: str, weights: Iterable[nn.Parameter], initial: bool
) -> set[nn.Parameter]:
    """Return those of the weights that have a non-zero gradient on one script with resets inside."""
    weights = [*weights]
    outputs = probe.run(form, probe.script(B=MANY, resets=AWKWARD_RESETS, initial=initial)).outputs
    learned = {name: outputs[name] for name in learned_outputs(outputs) if outputs[name].requires_grad}
    gradients = torch.autograd.grad(random_projection(learned).sum(), weights, materialize_grads=True)
    return {x for x, gradient in zip(weights, gradients, strict=True) if gradient.any()}
