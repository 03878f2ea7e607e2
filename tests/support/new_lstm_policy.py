"""A policy with a hand-written forward that calls the state methods of `LSTMWrapper`."""

# pyright: reportCallIssue=false
# pyright loses the arguments of methods decorated with torch.compiler.disable.

import torch
from tensordict import TensorDict
from torch import nn

from holdfast.policies import LSTMWrapper


class NewLSTMPolicy(LSTMWrapper):
    """Any new LSTM policy gets all features automatically."""

    def __init__(self, spec, hidden_size=12, num_layers=2, **options):
        super().__init__(spec, input_size=10, hidden_size=hidden_size, num_layers=num_layers, **options)
        self.encoder = nn.Linear(spec.obs.shape[0], 10)
        self.actor = nn.Linear(hidden_size, len(spec.actions.names))
        self.critic = nn.Linear(hidden_size, 1)

    def forward(self, td: TensorDict, state=None, action=None):
        observations = td["env_obs"]
        B = observations.shape[0]
        TT = 1 if observations.dim() == 2 else observations.shape[1]
        device = observations.device
        hidden = torch.tanh(self.encoder(observations.reshape(B * TT, -1)))
        hidden = hidden.view(B, TT, -1).transpose(0, 1)

        # Get properly managed LSTM state
        lstm_h, lstm_c, env_id = self._manage_lstm_state(td, B, TT, device)
        lstm_state = (lstm_h, lstm_c)

        # Forward through LSTM
        lstm_output, (new_h, new_c) = self.lstm(hidden, lstm_state)

        # Store with automatic detachment
        self._store_lstm_state(new_h, new_c, env_id)

        flat_hidden = lstm_output.transpose(0, 1).reshape(B * TT, -1)
        logits = self.only_legal(td, self.actor(flat_hidden))  # does nothing where the world does not mask
        log_probs = logits.log_softmax(-1)
        shape = td.batch_size
        if action is None:
            action = torch.distributions.Categorical(logits=log_probs).sample()
            td["actions"] = action.reshape(shape)
        else:
            td["entropy"] = -(log_probs.exp() * log_probs).sum(-1).reshape(shape)
        td["act_log_prob"] = log_probs.gather(-1, action.reshape(-1, 1)).reshape(shape)
        td["values"] = self.critic(flat_hidden).reshape(shape)
        td["full_log_probs"] = log_probs.reshape(*shape, -1)
        return td
