"""The learner: one batch of experience -> new weights. Proximal policy optimisation over whole segments."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from holdfast.checkpoint import CheckpointError, restore_optimizer
from holdfast.config.batches import BatchPlan
from holdfast.config.settings import TrainerSettings
from holdfast.errors import HoldfastError
from holdfast.policies import Policy, shared_name
from holdfast.ppo import (
    Experience,
    Losses,
    Segments,
    clip_weights_,
    explained_variance,
    gae,
    l2_to_init_loss,
    normalize_advantages,
    ppo_losses,
    prioritized_minibatches,
    scheduled,
    segment_minibatches,
    segment_priorities,
    vtrace,
    weight_limits,
)
from holdfast.recurrence import State
from holdfast.rollout import score, state_after
from holdfast.spec import keys


@dataclass(frozen=True)
class Parity:
    """How far scoring a batch's first minibatch, before any update, is from what acting stored. Zero up to rounding."""

    log_ratio: Tensor  # [T, M] |new - old|, 0 on junk
    max_log_ratio: float
    max_value: float
    first: Tensor  # [T, M]


@dataclass(frozen=True)
class Update:
    metrics: dict[str, float]  # means over the batch's minibatches
    parity: Parity
    sample: Segments  # the first minibatch, for looking at shapes


class Learner:
    def __init__(
        self,
        policy: Policy,
        settings: TrainerSettings,
        plan: BatchPlan,
        generator: torch.Generator,
        on_skipped: Callable[[float, dict[str, Tensor]], None] | None = None,
    ):
        """on_skipped hears of every gradient step that was not taken: its loss, and the minibatch that made it."""
        self.policy, self.settings, self.plan, self.generator = policy, settings, plan, generator
        self._on_skipped = on_skipped
        self._skipped_in_a_row = 0
        # In an order both families share: sums over weights then round alike.
        named = sorted(policy.named_parameters(), key=lambda item: shared_name(item[0]))
        self.params = {name: parameter for name, parameter in named if parameter.requires_grad}
        self.optimizer = torch.optim.Adam(self.params.values(), lr=settings.lr, eps=settings.adam_eps, fused=True)
        keeps_first = settings.l2_init > 0 or settings.weight_clip > 0
        self.l2_scales = {name: l2 for name, (_, l2) in policy.weight_scales().items()}
        self._begin_from({n: p.detach().clone() for n, p in self.params.items()} if keeps_first else {})
        self._parts = [policy.part_of(name) for name in self.params]

    def _begin_from(self, first_values: dict[str, Tensor]) -> None:
        """The weights that L2-to-init pulls to and that clipping measures by."""
        s = self.settings
        self.first_values = first_values
        clip_scales = {name: clip for name, (clip, _) in self.policy.weight_scales().items()}
        self.weight_limits = weight_limits(first_values, s.weight_clip, clip_scales) if s.weight_clip else {}

    def restore(
        self, first_values: dict[str, Tensor], optimizer: Mapping[str, Tensor], facts: Mapping[str, Any]
    ) -> None:
        """Go on as the learner that `flatten_optimizer` saw; weights are the policy's to bring back."""
        if first_values.keys() != self.first_values.keys():
            raise CheckpointError("first: the first values of other weights than this policy has")
        restore_optimizer(self.optimizer, optimizer, facts)
        for group in self.optimizer.param_groups:
            group["eps"] = self.settings.adam_eps  # as every setting, it may have been changed
        self._begin_from({name: x.to(self.params[name]) for name, x in first_values.items()})

    def update(self, experience: Experience, progress: float) -> Update:
        """Learn from one complete rollout; progress (0 to 1) of the run drives the schedules."""
        s = self.settings
        lr = scheduled(s.lr, s.schedule.lr, progress)
        clip = scheduled(s.clip, s.schedule.clip, progress)
        entropy_coef = scheduled(s.entropy_coef, s.schedule.entropy_coef, progress)
        for group in self.optimizer.param_groups:
            group["lr"] = lr

        outcomes = experience.outcomes()
        valid = outcomes["valid"]
        ratio = torch.ones_like(outcomes["final_values"])
        advantages, returns = self._advantages(outcomes, ratio)
        figures: dict[str, list[float]] = defaultdict(list)
        parity = sample = None
        skipped = 0
        for epoch in range(s.update_epochs):
            if epoch and s.advantage == "vtrace":
                advantages, returns = self._advantages(outcomes, ratio)
            if epoch and s.start_states == "refreshed":
                self._refresh_start_states(experience)
            for ids, weights in self._minibatches(advantages, progress):
                batch = experience.segments(ids)
                start = self._start_state(experience, batch, ids)
                scored = score(self.policy, batch.arrivals, start, batch.actions)
                batch_advantages = experience.gather(advantages, ids)
                losses = ppo_losses(
                    scored[keys.LOG_PROB],
                    batch.log_prob,
                    normalize_advantages(batch_advantages, batch.valid) if s.normalize_advantage else batch_advantages,
                    scored[keys.VALUES],
                    batch.values,
                    experience.gather(returns, ids),
                    scored[keys.ENTROPY],
                    batch.valid,
                    weights,
                    clip,
                    s.value_clip,
                )
                if parity is None:
                    parity, sample = _parity(batch, scored[keys.LOG_PROB], scored[keys.VALUES]), batch
                loss = losses.policy_loss + s.value_coef * losses.value_loss - entropy_coef * losses.entropy
                if s.l2_init:
                    loss = loss + s.l2_init * l2_to_init_loss(self.params, self.first_values, self.l2_scales)
                norms = self._step(loss)
                if norms is None:
                    skipped += 1
                    self._skip(float(loss.detach()), batch, start, batch_advantages)
                    continue
                self._skipped_in_a_row = 0
                if s.advantage == "vtrace":
                    experience.write_back(ratio, ids, losses.ratio)
                for name, value in (_loss_figures(losses) | norms).items():
                    figures[name].append(value)
            epoch_kl = figures["approx_kl"][-self.plan.minibatches :]
            if s.target_kl and epoch_kl and sum(epoch_kl) / len(epoch_kl) > s.target_kl:
                break
        assert parity is not None
        assert sample is not None
        metrics = {name: sum(values) / len(values) for name, values in figures.items() if values}
        metrics["explained_variance"] = float(explained_variance(outcomes["values"][:-1], returns, valid))
        metrics["lr"] = lr
        metrics["skipped"] = skipped
        return Update(metrics, parity, sample)

    def _advantages(self, outcomes: dict[str, Tensor], ratio: Tensor) -> tuple[Tensor, Tensor]:
        s = self.settings
        scaled = outcomes if s.reward_scale == 1.0 else {**outcomes, "rewards": outcomes["rewards"] * s.reward_scale}
        if s.advantage == "gae":
            return gae(**scaled, gamma=s.gamma, lam=s.gae_lambda)
        return vtrace(**scaled, ratio=ratio, gamma=s.gamma, lam=s.gae_lambda, rho_clip=s.vtrace_rho, c_clip=s.vtrace_c)

    def _minibatches(self, advantages: Tensor, progress: float) -> Iterator[tuple[Tensor, Tensor | None]]:
        s, per_minibatch = self.settings, self.plan.segments_per_minibatch
        if s.prioritized.alpha == 0:
            num_segments = self.plan.minibatches * per_minibatch
            for ids in segment_minibatches(num_segments, per_minibatch, self.generator):
                yield ids, None
            return
        beta = s.prioritized.beta + (1.0 - s.prioritized.beta) * progress
        priorities = segment_priorities(advantages, self.plan.horizon)
        yield from prioritized_minibatches(priorities, per_minibatch, s.prioritized.alpha, beta, self.generator)

    def _start_state(self, experience: Experience, batch: Segments, ids: Tensor) -> State:
        """The memory each segment is learned from."""
        if self.settings.start_states == "zeros":
            return tuple(torch.zeros_like(leaf) for leaf in batch.start_state)
        if not self.settings.burn_in:
            return batch.start_state
        start = tuple(leaf.clone() for leaf in batch.start_state)
        for group in experience.burn_in(ids):
            T, M = group.first.shape
            actions = batch.actions.new_zeros(T, M, *batch.actions.shape[2:])
            warm = state_after(self.policy, group.arrivals, group.start_state, actions)
            for leaf, new in zip(start, warm, strict=True):
                leaf[:, group.positions] = new
        return start

    def _refresh_start_states(self, experience: Experience) -> None:
        """Replay the rollout with today's weights and take the memories it passes through."""
        whole, T = experience.whole(), experience.horizon
        state = whole.start_state
        for k in range(1, experience.segments_per_slot):
            rows = slice((k - 1) * T, k * T)
            arrivals = {key: x[rows] for key, x in whole.arrivals.items()}
            state = state_after(self.policy, arrivals, state, whole.actions[rows])
            experience.replace_start_states(k, state)

    def _skip(self, loss: float, batch: Segments, start: State, advantages: Tensor) -> None:
        """A step that was not taken is told; too many of them one after another end the run."""
        self._skipped_in_a_row += 1
        if self._on_skipped is not None:
            tensors = {**batch.arrivals, **{f"start_state_{i}": leaf for i, leaf in enumerate(start)}}
            tensors |= {keys.ACTIONS: batch.actions, keys.LOG_PROB: batch.log_prob, keys.VALUES: batch.values}
            self._on_skipped(loss, {**tensors, "valid": batch.valid, "advantages": advantages})
        if self._skipped_in_a_row > self.settings.skipped_updates:
            raise HoldfastError(
                f"the gradient was not finite {self._skipped_in_a_row} times in a row (loss {loss:.4g}); none of these "
                "steps was taken.\nA smaller trainer.lr or trainer.max_grad_norm usually helps; the last checkpoint is intact."
            )

    def _step(self, loss: Tensor) -> dict[str, float] | None:
        """Gradient, its norms, clipping, one step of Adam; None, and no step, where the gradient is not finite."""
        self.optimizer.zero_grad(set_to_none=True)
        loss.backward()
        grads, parts = [], []
        for param, part in zip(self.params.values(), self._parts, strict=True):
            if param.grad is not None:
                grads.append(param.grad)
                parts.append(part)
        squares = torch.stack(torch._foreach_norm(grads)).square().tolist()  # pyright: ignore[reportPrivateImportUsage]
        by_part = dict.fromkeys(("encoder", "recurrence", "heads"), 0.0)
        for part, square in zip(parts, squares, strict=True):
            by_part[part] += square
        norm = sum(by_part.values()) ** 0.5
        if not norm < float("inf"):
            return None
        if self.settings.max_grad_norm and norm > self.settings.max_grad_norm:
            torch._foreach_mul_(grads, self.settings.max_grad_norm / (norm + 1e-6))  # pyright: ignore[reportPrivateImportUsage]
        self.optimizer.step()
        clip_weights_(self.params, self.weight_limits)
        return {"grad_norm": norm, **{f"grad_norm_{part}": square**0.5 for part, square in by_part.items()}}


def _loss_figures(losses: Losses) -> dict[str, float]:
    names = ("policy_loss", "value_loss", "entropy", "approx_kl", "clip_fraction")
    figures = torch.stack([getattr(losses, name).detach() for name in names]).tolist()
    return dict(zip(names, figures, strict=True))


@torch.no_grad()
def _parity(batch: Segments, log_prob: Tensor, values: Tensor) -> Parity:
    log_ratio = (log_prob.detach() - batch.log_prob).abs().where(batch.valid, 0.0)
    value = (values.detach() - batch.values).abs().where(batch.valid, 0.0)
    return Parity(log_ratio, float(log_ratio.max()), float(value.max()), batch.first)
