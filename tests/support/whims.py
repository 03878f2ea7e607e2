"""A policy that uses the global random generators when it acts, as user code may."""

import random

import numpy as np
import torch
from torch import nn

from holdfast.policies import LSTMWrapper


class Whims(LSTMWrapper):
    def __init__(self, spec, hidden_size=8, num_layers=1, **memory):
        super().__init__(spec, 8, hidden_size, num_layers, **memory)
        self.encoder = nn.Linear(spec.obs.shape[0], 8)
        self.actor = nn.Linear(hidden_size, len(spec.actions.names))
        self.critic = nn.Linear(hidden_size, 1)

    def encode_observations(self, observations):
        return torch.tanh(self.encoder(observations))

    def decode_actions(self, hidden):
        logits = self.actor(hidden)
        if not torch.is_grad_enabled():
            logits = logits * (1 + random.gauss(0, 1) + np.random.normal() + torch.randn(()))
        return logits, self.critic(hidden).squeeze(-1)
