"""BoxPolicy: an MLP for vectors, a CNN for images, or both for Dict observations; supports all action spaces."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from holdfast.config.registry import AGENTS
from holdfast.errors import SettingsError
from holdfast.policies.lstm_wrapper import LSTMWrapper
from holdfast.policies.parts.layers import RunningNorm, linear, mlp
from holdfast.spec import BoxActions, BoxObs, DiscreteObs, ObsPart, TokenObs, WorldSpec


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
        image_parts = [part for part in parts if is_image(part.shape)]
        vector_parts = [part for part in parts if not is_image(part.shape)]
        images = [ImageEncoder(part.shape, part.scale) for part in image_parts]
        vector_size = sum(part.size for part in vector_parts)
        sizes = [vector_size + sum(image.size for image in images), *encoder]
        super().__init__(spec, sizes[-1], hidden_size, num_layers, **options)
        self.image_parts, self.vector_parts = image_parts, vector_parts
        self.images = nn.ModuleList(images)
        self.encoder = mlp(sizes, nn.Tanh)
        numeric = isinstance(spec.obs, BoxObs) and vector_size > 0
        if not normalize_obs and not numeric:
            raise SettingsError(
                f"policy.normalize_obs=false has no effect: {spec.name} has no vectors of numbers in its observations. "
                "Remove the setting."
            )
        if log_std and not isinstance(spec.actions, BoxActions):
            raise SettingsError(f"policy.log_std={log_std} has no effect: {spec.name} has discrete actions. Remove it.")
        self.norm = RunningNorm(vector_size) if normalize_obs and numeric else None

        num_outputs = self.distribution.num_params
        self.log_std = None
        if isinstance(spec.actions, BoxActions):
            num_outputs //= 2
            self.log_std = nn.Parameter(torch.full((num_outputs,), log_std))
        head_sizes = [hidden_size, *heads]
        # With small weights in the last layer, a new policy is close to uniform, so the first updates explore.
        self.actor = nn.Sequential(*mlp(head_sizes, nn.Tanh), linear(head_sizes[-1], num_outputs, 0.01))
        self.critic = nn.Sequential(*mlp(head_sizes, nn.Tanh), linear(head_sizes[-1], 1))

    head_names = ("actor", "critic", "log_std")

    def encode_observations(self, observations: Tensor) -> Tensor:
        """Return features [N, F] for observations [N, *shape]."""
        if isinstance(self.spec.obs, DiscreteObs):
            return self.encoder(F.one_hot(observations, self.spec.obs.n).float())
        features = []
        if self.vector_parts:
            vector = self._vector(observations)
            features.append(vector if self.norm is None else self.norm(vector))
        for part, image in zip(self.image_parts, self.images, strict=True):
            features.append(image(self._part(observations, part)))
        return self.encoder(torch.cat(features, -1) if len(features) > 1 else features[0])

    def decode_actions(self, hidden: Tensor) -> tuple[Tensor, Tensor]:
        params = self.actor(hidden)
        if self.log_std is not None:
            params = torch.cat([params, self.log_std.expand_as(params)], -1)
        return params, self.critic(hidden).squeeze(-1)

    @property
    def absorbs(self) -> bool:
        return self.norm is not None

    def absorb(self, obs: Tensor) -> None:
        if self.norm is not None:
            self.norm.update(self._vector(obs))

    def _vector(self, observations: Tensor) -> Tensor:
        """Return the parts of the observations that are not images, concatenated, as float [N, vector_size]."""
        vectors = [self._part(observations, part).reshape(len(observations), -1) for part in self.vector_parts]
        return (torch.cat(vectors, -1) if len(vectors) > 1 else vectors[0]).float()

    def _part(self, observations: Tensor, part: ObsPart) -> Tensor:
        """Return one part of a Dict observation, or the whole observation if it is not a Dict, as [N, *part.shape]."""
        if isinstance(self.spec.obs, BoxObs) and self.spec.obs.parts:
            observations = observations[:, part.start : part.start + part.size]
        return observations.reshape(len(observations), *part.shape)


class ImageEncoder(nn.Module):
    """Three convolutions for images [H, W, C] or [C, H, W]. Pixel values are divided by `scale` first."""

    def __init__(self, shape: tuple[int, ...], scale: float):
        super().__init__()
        self.scale = scale
        self.channels_last = shape[-1] in (1, 3, 4) or shape[-1] < shape[0]
        height, width, channels = shape if self.channels_last else (*shape[1:], shape[0])
        # Kernel/stride 8/4, 4/2, 3/1 is usual for 84 x 84 images; small images need smaller kernels and strides.
        stack = ((8, 4), (4, 2), (3, 1)) if min(height, width) >= 36 else ((3, 1), (3, 2), (3, 1))
        layers: list[nn.Module] = []
        for outputs, (kernel, stride) in zip((32, 64, 64), stack, strict=True):
            conv = nn.Conv2d(channels, outputs, kernel, stride)
            nn.init.orthogonal_(conv.weight, math.sqrt(2.0))
            nn.init.zeros_(conv.bias)  # type: ignore[arg-type]
            layers += [conv, nn.ReLU()]
            channels, height, width = outputs, (height - kernel) // stride + 1, (width - kernel) // stride + 1
        if min(height, width) < 1:
            raise SettingsError(
                f"py_agent=box needs images of at least 10 x 10 pixels; the image in the observation has shape {list(shape)}."
            )
        self.stack = nn.Sequential(*layers)
        self.size = channels * height * width

    def forward(self, x: Tensor) -> Tensor:
        x = x.float() / self.scale
        return self.stack(x.permute(0, 3, 1, 2) if self.channels_last else x).flatten(1)


def is_image(shape: tuple[int, ...]) -> bool:
    return len(shape) == 3 and min(shape[0], shape[2]) <= 16 and min(sorted(shape)[1:]) >= 10


def _parts(obs: BoxObs | DiscreteObs) -> tuple[ObsPart, ...]:
    if isinstance(obs, DiscreteObs):
        return (ObsPart("obs", (obs.n,), 0),)
    return obs.parts or (ObsPart("obs", obs.shape, 0, obs.scale),)
