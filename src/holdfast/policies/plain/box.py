"""BoxPolicy: reads numbers, images, small grids and integer codes, in one observation too; takes all kinds of actions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from holdfast.config.registry import AGENTS
from holdfast.errors import SettingsError
from holdfast.policies.lstm_wrapper import LSTMWrapper
from holdfast.policies.parts.arrays import CodeEncoder, GridEncoder, ImageEncoder, is_grid, is_image
from holdfast.policies.parts.layers import RunningNorm, linear, mlp
from holdfast.recurrence import LSTM
from holdfast.spec import BoxActions, BoxObs, DiscreteObs, MixedActions, ObsPart, TokenObs, WorldSpec


@AGENTS.register("box")
class BoxPolicy(LSTMWrapper):
    def __init__(
        self,
        spec: WorldSpec,
        hidden_size: int = 64,
        num_layers: int = 1,
        encoder: Sequence[int] = (64, 64),
        heads: Sequence[int] = (64,),
        normalize_obs: bool = True,
        log_std: float = 0.0,
        **options: Any,
    ):
        """Build the layers. encoder, heads: layer widths of the MLPs. options: `core`, `memory_scope` for LSTMWrapper."""
        if isinstance(spec.obs, TokenObs):
            raise SettingsError(
                f"py_agent=box cannot read the tokens of {spec.name}.\nUse py_agent=fast for this world."
            )
        parts = _parts(spec.obs)
        code_parts = [part for part in parts if part.sizes]
        image_parts = [part for part in parts if not part.sizes and is_image(part.shape)]
        grid_parts = [part for part in parts if not part.sizes and is_grid(part.shape)]
        vector_parts = [part for part in parts if part not in (*code_parts, *image_parts, *grid_parts)]
        images = [ImageEncoder(part.shape, part.scale) for part in image_parts]
        grids = [GridEncoder(part.shape, normalize_obs, spec.obs.dtype == "uint8") for part in grid_parts]
        codes = [CodeEncoder(part.sizes) for part in code_parts]
        vector_size = sum(part.size for part in vector_parts)
        sizes = [vector_size + sum(module.size for module in (*images, *grids, *codes)), *encoder]
        super().__init__(spec, sizes[-1], hidden_size, num_layers, **options)
        if isinstance(self.core, LSTM):
            self.core.spread_forget_biases()
        self.image_parts, self.grid_parts, self.code_parts = image_parts, grid_parts, code_parts
        self.vector_parts = vector_parts
        self.images, self.grids, self.codes = nn.ModuleList(images), nn.ModuleList(grids), nn.ModuleList(codes)
        self.encoder = mlp(sizes, nn.Tanh)
        if not normalize_obs and not vector_parts and not grid_parts:
            raise SettingsError(
                f"policy.normalize_obs=false has no effect: {spec.name} has no vectors of numbers in its observations. "
                "Remove the setting."
            )
        num_reals = len(spec.actions.low) if isinstance(spec.actions, BoxActions | MixedActions) else 0
        if log_std and not num_reals:
            raise SettingsError(f"policy.log_std={log_std} has no effect: {spec.name} has discrete actions. Remove it.")
        self.norm = RunningNorm(vector_size) if normalize_obs and vector_parts else None
        self.log_std = nn.Parameter(torch.full((num_reals,), log_std)) if num_reals else None
        num_outputs = self.distribution.num_params - num_reals
        head_sizes = [hidden_size, *heads]
        # With small weights in the last layer, a new policy is close to uniform, so the first updates explore.
        self.actor = nn.Sequential(*mlp(head_sizes, nn.Tanh), linear(head_sizes[-1], num_outputs, 0.01))
        self.critic = nn.Sequential(*mlp(head_sizes, nn.Tanh), linear(head_sizes[-1], 1))

    head_names = ("actor", "critic", "log_std")

    def encode_observations(self, observations: Tensor) -> Tensor:
        """Return features [N, F] for observations [N, *shape]."""
        features = []
        if self.vector_parts:
            vector = self._vector(observations)
            features.append(vector if self.norm is None else self.norm(vector))
        for part, image in zip(self.image_parts, self.images, strict=True):
            features.append(image(self._part(observations, part)))
        for part, grid in zip(self.grid_parts, self.grids, strict=True):
            features.append(grid(self._part(observations, part)))
        for part, code in zip(self.code_parts, self.codes, strict=True):
            features.append(code(self._part(observations, part).reshape(observations.shape[0], -1)))
        return self.encoder(torch.cat(features, -1) if len(features) > 1 else features[0])

    def decode_actions(self, hidden: Tensor) -> tuple[Tensor, Tensor]:
        params = self.actor(hidden)
        if self.log_std is not None:
            params = torch.cat([params, self.log_std.expand(params.shape[0], -1)], -1)
        return params, self.critic(hidden).squeeze(-1)

    @property
    def absorbs(self) -> bool:
        return any(isinstance(module, RunningNorm) for module in self.modules())

    def absorb(self, obs: Tensor) -> None:
        if self.norm is not None:
            self.norm.update(self._vector(obs))
        for part, grid in zip(self.grid_parts, self.grids, strict=True):
            assert isinstance(grid, GridEncoder)
            grid.absorb(self._part(obs, part))

    def _vector(self, observations: Tensor) -> Tensor:
        """Return the numbers outside of images and grids, concatenated, as float [N, vector_size]."""
        vectors = [self._part(observations, part).reshape(observations.shape[0], -1) for part in self.vector_parts]
        return (torch.cat(vectors, -1) if len(vectors) > 1 else vectors[0]).float()

    def _part(self, observations: Tensor, part: ObsPart) -> Tensor:
        """Return one part of the observations, or the whole ones if they have no parts, as [N, *part.shape]."""
        if isinstance(self.spec.obs, BoxObs) and self.spec.obs.parts:
            observations = observations[:, part.start : part.start + part.size]
        return observations.reshape(observations.shape[0], *part.shape)


def _parts(obs: BoxObs | DiscreteObs) -> tuple[ObsPart, ...]:
    if isinstance(obs, DiscreteObs):
        return (ObsPart("obs", (), 0, sizes=(obs.n,)),)
    return obs.parts or (ObsPart("obs", obs.shape, 0, obs.scale),)
