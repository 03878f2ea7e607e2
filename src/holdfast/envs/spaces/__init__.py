"""Translate Gymnasium spaces to Holdfast specs, and convert observations, actions and action masks.

Readers and writers are built once per world. `lead` is () for values of one slot and (N,) for a batch of N slots.
`reader.read(obs, out)` checks the observation against its space (raises BadValue if they do not fit) and copies it
into `out` [*lead, *spec.shape], because environments may reuse their arrays.
`writer.write(actions)` converts policy actions [N, *spec.shape] to a batch in the form of the environment's action
space; `writer.rows(actions)` converts them to N single actions.
"""

from holdfast.envs.spaces.actions import ActionWriter
from holdfast.envs.spaces.interface import Interface, read_interface
from holdfast.envs.spaces.masks import MaskReader
from holdfast.envs.spaces.observations import obs_reader
from holdfast.envs.spaces.saved import read_spaces, save_spaces

__all__ = ["ActionWriter", "Interface", "MaskReader", "obs_reader", "read_interface", "read_spaces", "save_spaces"]
