"""Fast: a small convolution over the agent's window, two LSTM layers, wide heads. The standard agent for grid worlds."""

from __future__ import annotations

import math

from torch import Tensor, nn
from torch.nn import functional as F

from holdfast.errors import SettingsError
from holdfast.policies.lstm_wrapper import LSTMWrapper
from holdfast.policies.parts.layers import ActionEmbedding, BilinearHead, Tanh, linear
from holdfast.policies.parts.tokens import TokenConv2d, TokenGrid
from holdfast.spec import DiscreteActions, TokenObs, WorldSpec


class Fast(LSTMWrapper):
    head_names = ("actor", "critic", "action_embeddings")

    def __init__(
        self,
        spec: WorldSpec,
        hidden_size: int = 128,
        num_layers: int = 2,
        core: str = "lstm",
        memory_scope: str = "episode",
    ):
        if not isinstance(spec.obs, TokenObs) or not isinstance(spec.actions, DiscreteActions):
            raise SettingsError(
                f"py_agent=fast reads grid-world tokens and picks named actions; {spec.name} has "
                f"{type(spec.obs).__name__} and {type(spec.actions).__name__}.\nUse py_agent=box there."
            )
        super().__init__(spec, 128, hidden_size, num_layers, core, memory_scope)
        self.grid = TokenGrid(spec.obs, min_side=11)
        self.conv1 = TokenConv2d(self.grid, 64, kernel_size=5, stride=3)
        self.conv2 = nn.Conv2d(64, 64, 3)
        nn.init.orthogonal_(self.conv2.weight)
        nn.init.zeros_(self.conv2.bias)  # type: ignore[arg-type]
        places = (self.conv1.out_side - 2) ** 2
        self.encoder1 = linear(64 * places, 128)
        self.encoder2 = linear(128, 128)

        self.critic1 = linear(hidden_size, 1024, math.sqrt(2.0))
        self.critic2 = linear(1024, 1)
        self.actor1 = linear(hidden_size, 512)
        self.action_embeddings = ActionEmbedding(100, 16)
        self.actor2 = BilinearHead(512, 16)
        self.num_actions = len(spec.actions.names)
        if self.num_actions > 100:
            raise SettingsError(f"py_agent=fast has embeddings for 100 actions; {spec.name} has {self.num_actions}.")

    def encode_observations(self, observations: Tensor) -> Tensor:
        """Tokens [N, K, 3] -> [N, 128]."""
        x = F.relu(self.conv1(self.grid(observations)))
        x = F.relu(self._conv2(x)).flatten(1)
        return F.relu(self.encoder2(F.relu(self.encoder1(x))))

    def _conv2(self, x: Tensor) -> Tensor:
        if x.shape[-1] != 3:
            return self.conv2(x)
        # One place: the convolution is a matrix product, and x is stored channels last, so weights move, not x.
        weight = self.conv2.weight.permute(0, 2, 3, 1).flatten(1)
        return F.linear(x.permute(0, 2, 3, 1).flatten(1), weight, self.conv2.bias)

    def decode_actions(self, hidden: Tensor) -> tuple[Tensor, Tensor]:
        """[N, H] -> scores [N, A], values [N]."""
        values = self.critic2(Tanh.apply(self.critic1(hidden))).squeeze(-1)
        embeddings = self.action_embeddings.weight[: self.num_actions]
        return self.actor2(F.relu(self.actor1(hidden)), embeddings), values
