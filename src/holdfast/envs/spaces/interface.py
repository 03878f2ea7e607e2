"""Everything between an environment and its slots: reader, writer, masks, and the specs they result in."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from gymnasium import spaces

from holdfast.envs.spaces.actions import ActionWriter
from holdfast.envs.spaces.masks import MaskReader, mask_is_in
from holdfast.envs.spaces.observations import BoxReader, DiscreteReader, PackedReader, obs_reader
from holdfast.envs.spaces.saved import save_spaces
from holdfast.errors import SettingsError
from holdfast.spec import ActionSpec, BoxActions, keys


@dataclass(frozen=True)
class Interface:
    reader: BoxReader | DiscreteReader | PackedReader
    writer: ActionWriter
    masks: MaskReader | None  # None: actions are not masked
    actions: ActionSpec
    saved: str  # for WorldSpec.spaces


def read_interface(
    obs_space: spaces.Space,
    action_space: spaces.Space,
    world: str,
    first_slot: int,
    *,
    hide: Sequence[int | str] = (),
    action_mask: bool | None = None,
    idle: bool = False,
) -> Interface:
    """Return the interface of an environment with these spaces; raise SettingsError if one is not supported.

    action_mask: true: actions are masked; None: only if the mask is an entry of the observation; false: never.
    idle: see MaskReader.
    """
    writer = ActionWriter(action_space, world, first_slot)
    in_obs = action_mask is not False and mask_is_in(obs_space, writer.sizes)
    reader = obs_reader(obs_space, world, hide, apart=keys.ACTION_MASK if in_obs else None)
    saved = save_spaces(obs_space, action_space, hide, action_mask)
    if not (action_mask or in_obs):
        return Interface(reader, writer, None, writer.spec, saved)
    if isinstance(writer.spec, BoxActions):
        raise SettingsError(
            f"env.action_mask=true: {world} has continuous actions (real numbers), which cannot be masked.\n"
            "Remove env.action_mask."
        )
    masks = MaskReader(action_space, writer.sizes, in_obs, idle)
    return Interface(reader, writer, masks, replace(writer.spec, masked=True), saved)
