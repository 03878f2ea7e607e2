"""LSTMWrapper: base class for recurrent policies; subclasses implement `encode_observations` and `decode_actions`."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence

import torch
from tensordict import TensorDictBase
from torch import Tensor

from holdfast.errors import SettingsError
from holdfast.policies.policy import Policy
from holdfast.policies.tensordict_api import Call, Inputs, open_call, with_state
from holdfast.recurrence import Core, State, make_core
from holdfast.spec import WorldSpec, keys


class LSTMWrapper(Policy):
    """Base class for policies with one recurrent core, which runs between an encoder and a decoder.

    Usually a subclass only implements `encode_observations` and `decode_actions`. Alternatively, it overrides `forward` and
    calls `_manage_lstm_state`, `self.lstm` and `_store_lstm_state` in that order; these methods read and write the memory,
    reset it at episode starts and detach the state that they store.

    core: "lstm", "gru", "mingru", "none" (no memory), or a custom Core.
    sees: "action", "reward" or both: what the core sees of the previous step. It adds `num_seen` to the input of the core.
    """

    def __init__(
        self,
        spec: WorldSpec,
        input_size: int = 128,
        hidden_size: int = 128,
        num_layers: int = 2,
        core: str | Core = "lstm",
        memory_scope: str = "episode",
        sees: Sequence[str] = (),
    ):
        super().__init__(spec, memory_scope)
        self.see(sees)
        size = input_size + self.num_seen
        self.core = core if isinstance(core, Core) else make_core(core, size, hidden_size, num_layers)
        self._managed: Call | None = None
        self._pure_final: State | None = None

    def __call__(self, td: TensorDictBase, state: State | None = None, action: Tensor | None = None) -> TensorDictBase:
        self._managed = self._pure_final = None  # may be set if the last call raised an exception
        out = super().__call__(td, state, action)
        final, self._pure_final = self._pure_final, None
        return out if final is None else with_state(out, final, keys.FINAL_STATE)

    def compile_around_recurrence(self) -> None:
        """Apply torch.compile to the encoder and the heads; the core's kernel is already fused."""
        self.encode_observations = torch.compile(self.encode_observations)
        self.decode_actions = torch.compile(self.decode_actions)

    @abstractmethod
    def encode_observations(self, observations: Tensor) -> Tensor:
        """Return features [N, input_size] for observations [N, ...]; each row must depend on its observation only."""
        raise self._not_implemented("encode_observations")

    @abstractmethod
    def decode_actions(self, hidden: Tensor) -> tuple[Tensor, Tensor]:
        """Return action distribution parameters [N, P] and values [N] for the core's output [N, hidden_size]."""
        raise self._not_implemented("decode_actions")

    @property
    def state_shapes(self) -> tuple[tuple[int, int], ...]:
        return self.core.state_shapes

    def unroll(self, inputs: Inputs, first: Tensor, start: State) -> tuple[Tensor, Tensor, State]:
        T, B = first.shape
        x = self.encode_observations(inputs[keys.OBS].flatten(0, 1))
        y, final = self._run_core(x.unflatten(0, (T, B)), inputs, start, first)
        decoded = self.decode_actions(y.flatten(0, 1))
        if not isinstance(decoded, tuple | list) or len(decoded) != 2:
            given = f"{len(decoded)} values" if isinstance(decoded, tuple | list) else f"a {type(decoded).__name__}"
            raise SettingsError(
                f"{type(self).__name__}.decode_actions must return (scores, values), but returned {given}."
            )
        params, values = decoded
        return params.unflatten(0, (T, B)), values.reshape(T, B), final

    def _run_core(self, x: Tensor, inputs: Inputs, start: State, first: Tensor) -> tuple[Tensor, State]:
        """Run the core over features x [T, B, F] and, if `sees` is set, the previous action and reward."""
        if self.previous_step is not None:
            x = torch.cat([x, self.previous_step(inputs, first)], -1)
            if x.shape[-1] != self.core.input_size:
                raise SettingsError(
                    f"policy.sees adds {self.num_seen} features to the input of the core, so the core of "
                    f"{type(self).__name__} needs input_size={x.shape[-1]}, not {self.core.input_size}: add self.num_seen."
                )
        return self.core(x, start, first)

    # --------------------------------------------------------------------------- for a custom forward

    @torch.compiler.disable
    def _manage_lstm_state(
        self, td: TensorDictBase, B: int, TT: int, device: torch.device
    ) -> tuple[Tensor, Tensor, Tensor | None]:
        """Return the start state h and c, each [layers, B, hidden], and the slots [B] to store the final state for.

        The slots are None if memory is neither read nor written. td: [B], [B, TT] or flattened to [B * TT]. The next
        call of `self.lstm` uses the episode starts in td.
        """
        call = self._managed = open_call(self, td, B, TT)
        h, c = (leaf.to(device) for leaf in call.start)
        return h, c, call.slots

    def lstm(self, hidden: Tensor, lstm_state: tuple[Tensor, Tensor]) -> tuple[Tensor, State]:
        """Run the core over `hidden` [TT, B, input_size], as nn.LSTM does, but with resets at episode starts."""
        call, self._managed = self._managed, None
        if call is None or hidden.shape[:2] != call.first.shape:
            expected = (
                "call _manage_lstm_state first"
                if call is None
                else f"expected {[*call.first.shape]}, as passed to _manage_lstm_state"
            )
            raise RuntimeError(f"self.lstm() got an input with [time, slots] = {[*hidden.shape[:2]]}: {expected}.")
        return self._run_core(hidden, call.inputs, lstm_state, call.first)

    @torch.compiler.disable
    def _store_lstm_state(self, lstm_h: Tensor, lstm_c: Tensor, env_id: Tensor | None) -> None:
        """Detach the state and store it for the slots `env_id` [B]. If None, only return it as the final state."""
        if env_id is None:
            self._pure_final = (lstm_h, lstm_c)
        else:
            self.memory.write(env_id, (lstm_h, lstm_c))
