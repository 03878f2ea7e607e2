"""The learner: updates the weights from one rollout, with PPO over whole segments."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor

from holdfast.checkpoint import CheckpointError, restore_optimizer
from holdfast.config.batches import BatchPlan
from holdfast.config.settings import TrainerSettings
from holdfast.errors import HoldfastError
from holdfast.policies import Policy, shared_name
from holdfast.policies.actions import usual_entropy_coef
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
    prioritized_segments,
    scheduled,
    segment_minibatches,
    segment_priorities,
    vtrace,
    weight_limits,
)
from holdfast.ranks import Moments, OrderedSum, Shards
from holdfast.recurrence import State
from holdfast.spec import keys
from holdfast.trainer.adam import Adam
from holdfast.trainer.reward_scale import RewardScale


@dataclass(frozen=True)
class Parity:
    """Differences between acting and replaying the first minibatch, before any gradient step. Should be 0 up to rounding."""

    log_ratio: Tensor  # [T, M] |new - old log probability|, 0 where not valid; of the first shard of this rank
    max_log_ratio: float  # over all shards
    max_value: float
    first: Tensor  # [T, M] bool: observations that start an episode; of the same shard as log_ratio


@dataclass(frozen=True)
class Update:
    """Result of Learner.update."""

    metrics: dict[str, float]  # means over the batch's minibatches
    parity: Parity
    sample: Segments  # the first minibatch, for debug.shapes
    without_gradient: tuple[str, ...]  # names of parameters that have had no gradient since this process started


class Part(NamedTuple):
    """The part of an epoch's minibatches that comes from one shard."""

    experience: Experience
    ids: Sequence[Tensor]  # [M] segments of each minibatch
    weights: Sequence[Tensor | None]  # [M] importance weights; None: all equal
    batches: Iterator[Segments]


class Replayed(NamedTuple):
    """One shard's part of a minibatch after its backward pass."""

    batch: Segments
    start: State
    losses: Losses
    values: Tensor  # [T, M]

    @property
    def value_errors(self) -> Tensor:
        """|value - stored value| [T, M], 0 where not valid."""
        return (self.values - self.batch.values).where(self.batch.valid, 0.0).abs()


class Learner:
    """PPO over the shards of this rank. All ranks compute the same gradient steps, because they sum over all shards."""

    def __init__(
        self,
        policy: Policy,
        settings: TrainerSettings,
        plan: BatchPlan,
        generators: torch.Generator | Sequence[torch.Generator],
        on_skipped: Callable[[float, dict[str, Tensor]], None] | None = None,
        shards: Shards | None = None,
    ):
        """Prepare the optimizer. `generators` draw the minibatches, one for each shard of this rank.

        `on_skipped(loss, minibatch)` is called for every skipped gradient step.
        """
        self.policy, self.settings, self.plan = policy, settings, plan
        self.generators = [generators] if isinstance(generators, torch.Generator) else list(generators)
        self.shards = shards or Shards()
        self._on_skipped = on_skipped
        self.skipped_in_a_row = 0
        # Both policy families use the same order of parameters, so that sums over weights round alike.
        named = sorted(policy.named_parameters(), key=lambda item: shared_name(item[0]))
        self.params = {name: parameter for name, parameter in named if parameter.requires_grad}
        self.optimizer = Adam(self.params.values(), settings.lr, settings.adam_eps)
        keeps_first = settings.l2_init > 0 or settings.weight_clip > 0
        self.l2_scales = {name: l2 for name, (_, l2) in policy.weight_scales().items()}
        chosen = settings.entropy_coef
        self.entropy_coef = usual_entropy_coef(policy.spec.actions) if chosen is None else chosen
        self.reward_scale = RewardScale(settings.gamma, self.shards) if settings.normalize_rewards else None
        self._begin_from({n: p.detach().clone() for n, p in self.params.items()} if keeps_first else {})
        self._parts = [policy.part_of(name) for name in self.params]
        self._without_gradient = set(self.params)
        self._gradients: OrderedSum | None = None  # the gradient and the losses of each shard, if there are several

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

    def update(self, experience: Experience | Sequence[Experience], progress: float) -> Update:
        """Update the weights from one complete rollout of each shard of this rank.

        progress: the finished fraction of the run, 0 to 1.
        """
        experiences = [experience] if isinstance(experience, Experience) else experience
        s = self.settings
        lr = scheduled(s.lr, s.schedule.lr, progress)
        clip = scheduled(s.clip, s.schedule.clip, progress)
        entropy_coef = scheduled(self.entropy_coef, s.schedule.entropy_coef, progress)
        for group in self.optimizer.param_groups:
            group["lr"] = lr

        if self.shards.count > 1 and self._gradients is None:
            length = sum(param.numel() for param in self.params.values()) + len(Losses.METRICS)
            self._gradients = self.shards.group.ordered_sum(len(self.shards.own), length)
        if self.reward_scale is not None:
            self.reward_scale.update(experiences)
        ratios = [torch.ones_like(experience.returns) for experience in experiences]
        self._compute_advantages(experiences, ratios)
        figures: dict[str, list[float]] = defaultdict(list)
        first: list[Replayed] = []
        skipped = 0
        for epoch in range(s.update_epochs):
            if epoch and s.advantage == "vtrace":
                self._compute_advantages(experiences, ratios)
            if epoch and s.start_states == "refreshed":
                self._refresh_start_states(experiences)
            parts = self._draw_parts(experiences, progress)
            moments = self._advantage_moments(parts)
            for number in range(self.plan.minibatches):
                replayed = [self._replay(i, number, parts[i], moments, clip, entropy_coef) for i in range(len(parts))]
                first = first or replayed
                measured = self._sum_over_shards() if self._gradients else replayed[0].losses.metrics()
                norms = self._step()
                if norms is None:
                    skipped += 1
                    loss = measured["policy_loss"] + s.value_coef * measured["value_loss"]
                    self._skip(loss - entropy_coef * measured["entropy"], replayed[0])
                    continue
                self.skipped_in_a_row = 0
                if s.advantage == "vtrace":
                    for ratio, part, found in zip(ratios, parts, replayed, strict=True):
                        part.experience.write_back(ratio, part.ids[number], found.losses.log_ratio.exp())
                for name, value in (measured | norms).items():
                    figures[name].append(value)
            epoch_kl = figures["approx_kl"][-self.plan.minibatches :]
            if s.target_kl and epoch_kl and sum(epoch_kl) / len(epoch_kl) > s.target_kl:
                break
        metrics = {name: sum(values) / len(values) for name, values in figures.items() if values}
        metrics |= {"explained_variance": self._explained_variance(experiences), "lr": lr, "skipped": skipped}
        errors = [(x.losses.log_ratio.abs().max(), x.value_errors.max()) for x in first]
        log_ratio, value = self.shards.concat(torch.tensor(errors, dtype=torch.float64)).amax(0).tolist()
        parity = Parity(first[0].losses.log_ratio.abs(), log_ratio, value, first[0].batch.first)
        return Update(metrics, parity, first[0].batch, tuple(sorted(self._without_gradient)))

    def _replay(
        self, i: int, number: int, part: Part, moments: list[Moments], clip: float, entropy_coef: float
    ) -> Replayed:
        """Replay the part of minibatch `number` that comes from this rank's shard i, and add up its gradient."""
        s, batch = self.settings, next(part.batches)
        whole = moments[number] if moments else None  # of the whole minibatch; None if this part is all of it
        advantages = batch.advantages
        if s.normalize_advantage:
            advantages = normalize_advantages(advantages, batch.valid, (whole.mean, whole.variance) if whole else None)
        with self.shards.noise_of(i):
            start = self._start_state(part.experience, part.ids[number], batch.start_state)
            scored = self.policy.score(batch.inputs, start, batch.actions)
        losses = ppo_losses(
            scored.log_prob,
            batch.log_prob,
            advantages,
            scored.values,
            batch.values,
            batch.returns,
            scored.entropy,
            batch.valid,
            part.weights[number],
            clip,
            s.value_clip,
            max(whole.count, 1.0) if whole else None,
        )
        loss = losses.policy_loss + s.value_coef * losses.value_loss - entropy_coef * losses.entropy
        if s.l2_init and self.shards.own[i] == 0:  # once, not for every shard
            loss = loss + s.l2_init * l2_to_init_loss(self.params, self.first_values, self.l2_scales)
        for param in self.params.values():
            param.grad = None
        loss.backward()
        if self._gradients is not None:
            grads = [p.new_zeros(p.numel()) if p.grad is None else p.grad.flatten() for p in self.params.values()]
            torch.cat([*grads, torch.stack(losses.tensors())], out=self._gradients.rows[i])
        return Replayed(batch, start, losses, scored.values.detach())

    def _sum_over_shards(self) -> dict[str, float]:
        """Replace the gradients by their sums over all shards. Return the losses of the minibatch, which are such sums too."""
        assert self._gradients is not None
        total, place = self._gradients.sum(), 0
        for param in self.params.values():
            param.grad = total[place : place + param.numel()].view_as(param)
            place += param.numel()
        return dict(zip(Losses.METRICS, total[place:].tolist(), strict=True))

    def _explained_variance(self, experiences: Sequence[Experience]) -> float:
        """Return the explained variance of the values over all shards."""
        outcomes = [(x.returns, x.outcomes()["values"][:-1], x.outcomes()["valid"]) for x in experiences]
        if self.shards.count == 1:
            ((returns, values, valid),) = outcomes
            return float(explained_variance(values, returns, valid))
        rows = [torch.cat([Moments.of(x, valid), Moments.of(x - y, valid)]) for x, y, valid in outcomes]
        returns, errors = self.shards.concat(torch.stack(rows)).split(3, dim=1)
        total, left = Moments.merge(returns).variance, Moments.merge(errors).variance
        return 1.0 - left / total if total > 0 else 0.0

    def _compute_advantages(self, experiences: Sequence[Experience], ratios: Sequence[Tensor]) -> None:
        """Store advantages and returns in each experience. ratios [R, S]: new / old action probability, for V-trace."""
        s = self.settings
        factor = s.reward_scale * (self.reward_scale.factor if self.reward_scale else 1.0)
        for experience, ratio in zip(experiences, ratios, strict=True):
            outcomes = experience.outcomes()
            if factor != 1.0:
                outcomes["rewards"] = outcomes["rewards"] * factor
            if s.advantage == "gae":
                targets = gae(**outcomes, gamma=s.gamma, lam=s.gae_lambda)
            else:
                targets = vtrace(
                    **outcomes, ratio=ratio, gamma=s.gamma, lam=s.gae_lambda, rho_clip=s.vtrace_rho, c_clip=s.vtrace_c
                )
            experience.advantages, experience.returns = targets

    def _draw_parts(self, experiences: Sequence[Experience], progress: float) -> list[Part]:
        """Draw the segments of each minibatch of an epoch, the same number from every shard."""
        s, per_minibatch = self.settings, self.plan.segments_per_minibatch // self.shards.count
        pairs = list(zip(experiences, self.generators, strict=True))
        if s.prioritized.alpha == 0:
            drawn = [list(segment_minibatches(x.num_segments, per_minibatch, generator)) for x, generator in pairs]
            weights: list[Sequence[Tensor | None]] = [[None] * len(ids) for ids in drawn]
        else:
            beta = s.prioritized.beta + (1.0 - s.prioritized.beta) * progress
            priorities = [segment_priorities(x.advantages, self.plan.horizon) for x in experiences]
            all_ids, all_weights = zip(
                *(
                    prioritized_segments(found, s.prioritized.alpha, beta, generator)
                    for found, generator in zip(priorities, self.generators, strict=True)
                ),
                strict=True,
            )
            largest = self.shards.concat(torch.stack([x.max() for x in all_weights])).max()
            drawn = [ids.split(per_minibatch) for ids in all_ids]
            weights = [(x / largest).split(per_minibatch) for x in all_weights]
        return [
            Part(x, ids, part_weights, x.minibatches(ids))
            for x, ids, part_weights in zip(experiences, drawn, weights, strict=True)
        ]

    def _advantage_moments(self, parts: Sequence[Part]) -> list[Moments]:
        """Return the moments of the advantages of each whole minibatch of an epoch, over all shards; [] for one shard."""
        if self.shards.count == 1:
            return []
        rows = []
        for x, ids, *_ in parts:
            # [segments, T], in the order of segment ids
            advantages, valid = (
                column.unflatten(0, (-1, x.horizon)).transpose(1, 2).flatten(0, 1)
                for column in (x.advantages, x.outcomes()["valid"])
            )
            places = [minibatch.to(x.device) for minibatch in ids]
            rows.append(torch.stack([Moments.of(advantages[i], valid[i]) for i in places]))
        merged = self.shards.concat(torch.stack(rows).cpu())  # [shards, minibatches, 3]
        return [Moments.merge(merged[:, number]) for number in range(self.plan.minibatches)]

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
            for leaf, new in zip(start, self._final_state(group.inputs, group.start_state, any_actions), strict=True):
                leaf[:, group.positions] = new
        return start

    def _refresh_start_states(self, experiences: Sequence[Experience]) -> None:
        """Replay the rollout with the current weights and store the new state at the start of each segment."""
        for i, experience in enumerate(experiences):
            whole, T = experience.whole(), experience.horizon
            state = whole.start_state
            for k in range(1, experience.segments_per_slot):
                rows = slice((k - 1) * T, k * T)
                inputs = {key: x[rows] for key, x in whole.inputs.items()}
                with self.shards.noise_of(i):
                    state = self._final_state(inputs, state, whole.actions[rows])
                experience.replace_start_states(k, state)

    @torch.no_grad()
    def _final_state(self, inputs: Mapping[str, Tensor], state: State, actions: Tensor) -> State:
        """Return the state after replaying these inputs and actions, [T, M, ...] each."""
        final = self.policy.score(inputs, state, actions).state
        if len(final) != len(state):
            raise HoldfastError(
                f"{type(self.policy).__name__}.forward stores no state after a sequence, but trainer.burn_in and "
                "trainer.start_states=refreshed need that state.\n"
                "At the end of forward, call self._store_lstm_state(h, c, env_id)."
            )
        return final

    def _skip(self, loss: float, replayed: Replayed) -> None:
        """Report a skipped gradient step; raise HoldfastError after more than `skipped_updates` in a row."""
        self.skipped_in_a_row += 1
        if self._on_skipped is not None:
            batch = replayed.batch
            tensors = {**batch.inputs, **{f"start_state_{i}": leaf for i, leaf in enumerate(replayed.start)}}
            tensors |= {keys.ACTIONS: batch.actions, keys.LOG_PROB: batch.log_prob, keys.VALUES: batch.values}
            self._on_skipped(loss, {**tensors, "valid": batch.valid, "advantages": batch.advantages})
        if self.skipped_in_a_row > self.settings.skipped_updates:
            raise HoldfastError(
                f"non-finite gradient {self.skipped_in_a_row} times in a row (loss {loss:.4g}); those steps were skipped.\n"
                "Try a smaller trainer.lr or trainer.max_grad_norm. The last checkpoint is intact."
            )

    def _step(self) -> dict[str, float] | None:
        """Clip the gradient and step Adam. Return gradient norms, or None (no step) if they are not finite."""
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
