"""The learner: updates the weights from one rollout, with PPO over whole segments."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
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
from holdfast.spec import keys
from holdfast.trainer.adam import Adam


@dataclass(frozen=True)
class Parity:
    """Differences between acting and replaying the first minibatch, before any gradient step. Should be 0 up to rounding."""

    log_ratio: Tensor  # [T, M] |new - old log probability|, 0 where not valid
    max_log_ratio: float
    max_value: float
    first: Tensor  # [T, M] bool: observations that start an episode


@dataclass(frozen=True)
class Update:
    """Result of Learner.update."""

    metrics: dict[str, float]  # means over the batch's minibatches
    parity: Parity
    sample: Segments  # the first minibatch, for debug.shapes
    without_gradient: tuple[str, ...]  # names of parameters that have had no gradient since this process started


class Learner:
    def __init__(
        self,
        policy: Policy,
        settings: TrainerSettings,
        plan: BatchPlan,
        generator: torch.Generator,
        on_skipped: Callable[[float, dict[str, Tensor]], None] | None = None,
    ):
        """Prepare the optimizer. `on_skipped(loss, minibatch)` is called for every skipped gradient step."""
        self.policy, self.settings, self.plan, self.generator = policy, settings, plan, generator
        self._on_skipped = on_skipped
        self.skipped_in_a_row = 0
        # Both policy families use the same order of parameters, so that sums over weights round alike.
        named = sorted(policy.named_parameters(), key=lambda item: shared_name(item[0]))
        self.params = {name: parameter for name, parameter in named if parameter.requires_grad}
        self.optimizer = Adam(self.params.values(), settings.lr, settings.adam_eps)
        keeps_first = settings.l2_init > 0 or settings.weight_clip > 0
        self.l2_scales = {name: l2 for name, (_, l2) in policy.weight_scales().items()}
        self._begin_from({n: p.detach().clone() for n, p in self.params.items()} if keeps_first else {})
        self._parts = [policy.part_of(name) for name in self.params]
        self._without_gradient = set(self.params)

    def _begin_from(self, first_values: dict[str, Tensor]) -> None:
        """Store the initial weights, which are the target of L2-to-init and set the limits of weight clipping."""
        s = self.settings
        self.first_values = first_values
        clip_scales = {name: clip for name, (clip, _) in self.policy.weight_scales().items()}
        self.weight_limits = weight_limits(first_values, s.weight_clip, clip_scales) if s.weight_clip else {}

    def restore(
        self, first_values: dict[str, Tensor], optimizer: Mapping[str, Tensor], facts: Mapping[str, Any]
    ) -> None:
        """Restore the optimizer and the initial weights. The caller restores the policy's weights."""
        if first_values.keys() != self.first_values.keys():
            raise CheckpointError("first.safetensors: its parameter names differ from this policy's")
        restore_optimizer(self.optimizer, optimizer, facts)
        for group in self.optimizer.param_groups:
            group["eps"] = self.settings.adam_eps  # the setting may have been changed on resume
        self._begin_from({name: x.to(self.params[name]) for name, x in first_values.items()})

    def update(self, experience: Experience, progress: float) -> Update:
        """Update the weights from one complete rollout; `progress` is the finished fraction of the run, 0 to 1."""
        s = self.settings
        lr = scheduled(s.lr, s.schedule.lr, progress)
        clip = scheduled(s.clip, s.schedule.clip, progress)
        entropy_coef = scheduled(s.entropy_coef, s.schedule.entropy_coef, progress)
        for group in self.optimizer.param_groups:
            group["lr"] = lr

        outcomes = experience.outcomes()
        ratio = torch.ones_like(experience.returns)
        self._compute_advantages(experience, ratio)
        figures: dict[str, list[float]] = defaultdict(list)
        parity = sample = None
        skipped = 0
        for epoch in range(s.update_epochs):
            if epoch and s.advantage == "vtrace":
                self._compute_advantages(experience, ratio)
            if epoch and s.start_states == "refreshed":
                self._refresh_start_states(experience)
            drawn, all_weights = self._draw_segments(experience.advantages, progress)
            for ids, weights, batch in zip(drawn, all_weights, experience.minibatches(drawn), strict=True):
                start = self._start_state(experience, ids, batch.start_state)
                scored = self.policy.score(batch.inputs, start, batch.actions)
                losses = ppo_losses(
                    scored.log_prob,
                    batch.log_prob,
                    normalize_advantages(batch.advantages, batch.valid) if s.normalize_advantage else batch.advantages,
                    scored.values,
                    batch.values,
                    batch.returns,
                    scored.entropy,
                    batch.valid,
                    weights,
                    clip,
                    s.value_clip,
                )
                if parity is None:
                    value_error = (scored.values.detach() - batch.values).where(batch.valid, 0.0).abs().max()
                    log_ratio = losses.log_ratio.abs()
                    parity = Parity(log_ratio, float(log_ratio.max()), float(value_error), batch.first)
                    sample = batch
                loss = losses.policy_loss + s.value_coef * losses.value_loss - entropy_coef * losses.entropy
                if s.l2_init:
                    loss = loss + s.l2_init * l2_to_init_loss(self.params, self.first_values, self.l2_scales)
                norms = self._step(loss)
                if norms is None:
                    skipped += 1
                    self._skip(float(loss.detach()), batch, start)
                    continue
                self.skipped_in_a_row = 0
                if s.advantage == "vtrace":
                    experience.write_back(ratio, ids, losses.log_ratio.exp())
                for name, value in (losses.metrics() | norms).items():
                    figures[name].append(value)
            epoch_kl = figures["approx_kl"][-self.plan.minibatches :]
            if s.target_kl and epoch_kl and sum(epoch_kl) / len(epoch_kl) > s.target_kl:
                break
        assert parity is not None
        assert sample is not None
        metrics = {name: sum(values) / len(values) for name, values in figures.items() if values}
        explained = explained_variance(outcomes["values"][:-1], experience.returns, outcomes["valid"])
        metrics |= {"explained_variance": float(explained), "lr": lr, "skipped": skipped}
        return Update(metrics, parity, sample, tuple(sorted(self._without_gradient)))

    def _compute_advantages(self, experience: Experience, ratio: Tensor) -> None:
        """Store advantages and returns in the experience. ratio [R, S]: new / old action probability, for V-trace."""
        s, outcomes = self.settings, experience.outcomes()
        if s.reward_scale != 1.0:
            outcomes["rewards"] = outcomes["rewards"] * s.reward_scale
        if s.advantage == "gae":
            targets = gae(**outcomes, gamma=s.gamma, lam=s.gae_lambda)
        else:
            targets = vtrace(
                **outcomes, ratio=ratio, gamma=s.gamma, lam=s.gae_lambda, rho_clip=s.vtrace_rho, c_clip=s.vtrace_c
            )
        experience.advantages, experience.returns = targets

    def _draw_segments(self, advantages: Tensor, progress: float) -> tuple[Sequence[Tensor], Sequence[Tensor | None]]:
        """Return the segment ids [M] and the importance weights [M] (None: all equal) of each minibatch of an epoch."""
        s, per_minibatch = self.settings, self.plan.segments_per_minibatch
        if s.prioritized.alpha == 0:
            num_segments = self.plan.minibatches * per_minibatch
            drawn = list(segment_minibatches(num_segments, per_minibatch, self.generator))
            return drawn, [None] * len(drawn)
        beta = s.prioritized.beta + (1.0 - s.prioritized.beta) * progress
        priorities = segment_priorities(advantages, self.plan.horizon)
        pairs = prioritized_minibatches(priorities, per_minibatch, s.prioritized.alpha, beta, self.generator)
        drawn, weights = zip(*pairs, strict=True)
        return drawn, weights

    def _start_state(self, experience: Experience, ids: Tensor, stored: State) -> State:
        """Return the state to replay each segment from: zeros, the stored state, or the state after burn-in."""
        if self.settings.start_states == "zeros":
            return tuple(torch.zeros_like(leaf) for leaf in stored)
        if not self.settings.burn_in:
            return stored
        start = tuple(leaf.clone() for leaf in stored)
        actions = self.policy.spec.actions
        for group in experience.burn_in(ids):
            shape, dtype = (*group.first.shape, *actions.shape), getattr(torch, actions.dtype)
            any_actions = torch.zeros(shape, dtype=dtype, device=group.first.device)
            for leaf, new in zip(start, self._replay(group.inputs, group.start_state, any_actions), strict=True):
                leaf[:, group.positions] = new
        return start

    def _refresh_start_states(self, experience: Experience) -> None:
        """Replay the rollout with the current weights and store the new state at the start of each segment."""
        whole, T = experience.whole(), experience.horizon
        state = whole.start_state
        for k in range(1, experience.segments_per_slot):
            rows = slice((k - 1) * T, k * T)
            inputs = {key: x[rows] for key, x in whole.inputs.items()}
            state = self._replay(inputs, state, whole.actions[rows])
            experience.replace_start_states(k, state)

    @torch.no_grad()
    def _replay(self, inputs: Mapping[str, Tensor], state: State, actions: Tensor) -> State:
        """Return the state after replaying these inputs and actions, [T, M, ...] each."""
        final = self.policy.score(inputs, state, actions).state
        if len(final) != len(state):
            raise HoldfastError(
                f"{type(self.policy).__name__}.forward stores no state after a sequence, but trainer.burn_in and "
                "trainer.start_states=refreshed need that state.\n"
                "At the end of forward, call self._store_lstm_state(h, c, env_id)."
            )
        return final

    def _skip(self, loss: float, batch: Segments, start: State) -> None:
        """Report a skipped gradient step; raise HoldfastError after more than `skipped_updates` in a row."""
        self.skipped_in_a_row += 1
        if self._on_skipped is not None:
            tensors = {**batch.inputs, **{f"start_state_{i}": leaf for i, leaf in enumerate(start)}}
            tensors |= {keys.ACTIONS: batch.actions, keys.LOG_PROB: batch.log_prob, keys.VALUES: batch.values}
            self._on_skipped(loss, {**tensors, "valid": batch.valid, "advantages": batch.advantages})
        if self.skipped_in_a_row > self.settings.skipped_updates:
            raise HoldfastError(
                f"non-finite gradient {self.skipped_in_a_row} times in a row (loss {loss:.4g}); those steps were skipped.\n"
                "Try a smaller trainer.lr or trainer.max_grad_norm. The last checkpoint is intact."
            )

    def _step(self, loss: Tensor) -> dict[str, float] | None:
        """Run backward, clip the gradient and step Adam. Return gradient norms, or None (no step) if they are not finite."""
        for param in self.params.values():
            param.grad = None
        loss.backward()
        found = [
            (n, p.grad, part)
            for (n, p), part in zip(self.params.items(), self._parts, strict=True)
            if p.grad is not None
        ]
        if not found:
            raise HoldfastError(
                f"no parameter of {type(self.policy).__name__} gets a gradient.\n"
                "Check that forward neither detaches its outputs nor runs under torch.no_grad()."
            )
        names, grads, parts = zip(*found, strict=True)
        squares = torch.stack(torch._foreach_norm(grads)).square().tolist()  # pyright: ignore[reportPrivateImportUsage]
        by_part = dict.fromkeys(("encoder", "recurrence", "heads"), 0.0)
        for part, square in zip(parts, squares, strict=True):
            by_part[part] += square
        if self._without_gradient:
            self._without_gradient -= {name for name, square in zip(names, squares, strict=True) if square}
        norm = sum(by_part.values()) ** 0.5
        if not norm < float("inf"):
            return None
        if self.settings.max_grad_norm and norm > self.settings.max_grad_norm:
            torch._foreach_mul_(grads, self.settings.max_grad_norm / (norm + 1e-6))  # pyright: ignore[reportPrivateImportUsage]
        self.optimizer.step()
        clip_weights_(self.params, self.weight_limits)
        return {"grad_norm": norm, **{f"grad_norm_{part}": square**0.5 for part, square in by_part.items()}}
