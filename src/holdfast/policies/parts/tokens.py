"""Grid-world tokens: check which tokens are valid, and look up the cell, channel and weight of each token."""

from __future__ import annotations

import math
import warnings
from typing import NamedTuple

import torch
from torch import Tensor, nn

from holdfast.errors import SettingsError
from holdfast.policies.vocabulary import Adaptive, Vocabulary, channel_names
from holdfast.spec import TokenObs, WorldSpec

NO_TOKEN = 0xFF
GLOBAL_TOKEN = 0xFE
NO_FEATURE, UNKNOWN = -1, -2  # entries of the channel table: no feature of this world; not in the vocabulary


class PlacedTokens(NamedTuple):
    """The usable tokens of N observations as one flat list; each tensor has shape [number of tokens]."""

    N: int
    observation: Tensor
    cell: Tensor
    channel: Tensor
    entry: Tensor  # attribute * 256 + value
    weight: Tensor


class TokenSet(NamedTuple):
    """The tokens of N observations, padded to the longest observation; each tensor has shape [N, K]."""

    cell: Tensor  # cell, channel, entry and weight are 0 where `real` is false
    channel: Tensor
    entry: Tensor
    weight: Tensor
    real: Tensor  # bool; false for padding and unusable tokens


class TokenGrid(Adaptive):
    """Look-up tables for the channel, cell and weight of each token.

    An amount has one channel; its weight is the amount divided by the channel's scale. A categorical feature has one
    channel per value, with weight 1, so that value 0 is not lost. Global tokens are placed on the agent's own cell.
    """

    finds = "features"

    def __init__(self, spec: WorldSpec, vocabulary: Vocabulary):
        super().__init__()
        self.side = grid_side(spec)
        # These tables are computed from the world's spec, so they are not saved.
        self.channel = nn.Buffer(torch.zeros(256 * 256, dtype=torch.long), persistent=False)
        self.amount = nn.Buffer(torch.zeros(256 * 256), persistent=False)  # the value in the token; 1 for a category
        self.weight = nn.Buffer(torch.zeros(256 * 256), persistent=False)  # divided by the channel's scale
        self.cell = nn.Buffer(torch.zeros(256, dtype=torch.long), persistent=False)  # -1: outside the window
        self.adapt(spec, vocabulary)

    def adapt(self, spec: WorldSpec, vocabulary: Vocabulary) -> None:
        obs = spec.obs
        if not isinstance(obs, TokenObs) or max(obs.window) > self.side:
            given = f"a token window of {max(obs.window)} cells" if isinstance(obs, TokenObs) else "no tokens"
            raise SettingsError(
                f"{spec.name} has {given}; this policy needs a token window of at most {self.side} cells. "
                "Train a new policy for this world."
            )
        self.num_channels = len(vocabulary.channels)
        number = {channel.name: i for i, channel in enumerate(vocabulary.channels)}
        channel = torch.full((256, 256), NO_FEATURE)
        amount, scale = torch.zeros(256, 256), torch.ones(256, 256)
        for feature in obs.features:
            found = [number.get(name, UNKNOWN) for name in channel_names(feature)]
            if feature.categories:
                channel[feature.id, : len(found)] = torch.tensor(found)
                amount[feature.id, : len(found)] = 1.0
            else:
                channel[feature.id] = found[0]
                amount[feature.id] = torch.arange(256)
                scale[feature.id] = vocabulary.channels[found[0]].scale if found[0] >= 0 else 1.0
        self.channel.copy_(channel.flatten())
        self.amount.copy_(amount.flatten())
        self.weight.copy_((amount / scale).flatten())
        self.cell.copy_(cell_table(*obs.window, self.side))
        self._warned = False

    def forward(self, tokens: Tensor, normalized: bool = True) -> PlacedTokens | TokenSet:
        """Return the tokens of observations [N, K, 3], uint8, without padding and unknown features, joined over N.

        While exporting, return a TokenSet: the number of usable tokens is not known in a program for any observation.
        """
        if torch.compiler.is_exporting():
            return self.side_by_side(tokens, normalized)
        N, K, _ = tokens.shape
        position = (tokens[..., 0] != NO_TOKEN).flatten().nonzero().squeeze(1)
        chosen = tokens.reshape(N * K, 3).index_select(0, position).long()
        cell, channel, entry, weight = self._read(chosen, normalized)
        placed = PlacedTokens(N, position // K, cell, channel, entry, weight)
        usable = (cell >= 0) & (channel >= 0)
        if bool(usable.all()):
            return placed
        self._warn_once(chosen, cell, channel)  # pyright: ignore  (its decorator is untyped)
        return PlacedTokens(N, *(x[usable] for x in placed[1:]))

    def side_by_side(self, tokens: Tensor, normalized: bool = True) -> TokenSet:
        """Return the tokens of observations [N, K, 3], uint8, padded to the longest observation; while exporting, to K."""
        real = tokens[..., 0] != NO_TOKEN
        if torch.compiler.is_exporting():
            longest = tokens.shape[1]
        else:
            longest = int(real.any(0).nonzero().max()) + 1 if bool(real.any()) else 1
        chosen, real = tokens[:, :longest].long(), real[:, :longest]
        cell, channel, entry, weight = self._read(chosen, normalized)
        usable = real & (cell >= 0) & (channel >= 0)
        if not torch.compiler.is_exporting() and bool((usable != real).any()):
            self._warn_once(chosen[real], cell[real], channel[real])  # pyright: ignore
        cell, channel, entry, weight = (x.where(usable, 0) for x in (cell, channel, entry, weight))
        return TokenSet(cell, channel, entry, weight, usable)

    def _read(self, tokens: Tensor, normalized: bool) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Return the cell, channel, entry and weight of each token."""
        coordinate, attribute, value = tokens.unbind(-1)
        entry = attribute * 256 + value
        weight = pick(self.weight if normalized else self.amount, entry)
        return pick(self.cell, coordinate), pick(self.channel, entry), entry, weight

    @torch.compiler.disable
    def _warn_once(self, tokens: Tensor, cell: Tensor, channel: Tensor) -> None:
        """Warn about invalid tokens, at most once. Features outside the vocabulary are dropped without a warning."""
        invalid = tokens[(cell < 0) | (channel == NO_FEATURE)]
        if self._warned or not len(invalid):
            return
        self._warned = True
        coordinate, attribute, value = invalid[0].tolist()
        warnings.warn(
            f"ignoring {len(invalid)} invalid tokens, outside the window or with a feature that is not in the world's "
            f"spec. The first has coordinate {coordinate:#04x}, attribute {attribute}, value {value}. Check the "
            "world's observations; further invalid tokens are ignored without a warning.",
            stacklevel=2,
        )


def pick(table: Tensor, index: Tensor) -> Tensor:
    """Return table[index] for a table [n] and an index of any shape; three times as fast as indexing."""
    return table.index_select(0, index.reshape(-1)).view(index.shape)


def grid_side(spec: WorldSpec) -> int:
    """Return the side length of the grid that holds a world's window: 11, 17, 23, ...

    With these lengths, a convolution with stride 3 reaches every cell.
    """
    if not isinstance(spec.obs, TokenObs):
        raise SettingsError(
            f"this agent reads grid-world tokens, but {spec.name} has none.\nUse py_agent=box for this world."
        )
    return 11 + 6 * max(0, math.ceil((max(spec.obs.window) - 11) / 6))


def cell_table(rows: int, columns: int, side: int) -> Tensor:
    """Return a table [256]: the cell index in the side x side grid for each coordinate byte, or -1 outside the window."""
    cell = torch.full((256,), -1)
    top, left = (side - rows) // 2, (side - columns) // 2
    for row in range(min(rows, 16)):
        for column in range(min(columns, 16)):
            cell[row << 4 | column] = (row + top) * side + column + left
    cell[GLOBAL_TOKEN] = (side // 2) * side + side // 2
    cell[NO_TOKEN] = -1
    return cell
