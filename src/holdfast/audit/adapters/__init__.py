"""Adapters that make policies of many libraries auditable. They take objects of a library, but do not import it."""

from holdfast.audit.adapters.bare import BareRecurrent
from holdfast.audit.adapters.cleanrl import CleanRLAgent
from holdfast.audit.adapters.common import last_steps, zero_where_first
from holdfast.audit.adapters.contract import ContractPolicy
from holdfast.audit.adapters.puffer import MettaGridLSTM, PufferPolicy
from holdfast.audit.adapters.rl_games import RlGamesModel
from holdfast.audit.adapters.rsl_rl import RslRlModels
from holdfast.audit.adapters.sb3 import RecurrentPPOPolicy
from holdfast.audit.adapters.skrl import SkrlModels
from holdfast.audit.adapters.step_function import StepFunction
from holdfast.audit.adapters.torchrl import TorchRLPolicy

__all__ = [
    "BareRecurrent",
    "CleanRLAgent",
    "ContractPolicy",
    "MettaGridLSTM",
    "PufferPolicy",
    "RecurrentPPOPolicy",
    "RlGamesModel",
    "RslRlModels",
    "SkrlModels",
    "StepFunction",
    "TorchRLPolicy",
    "last_steps",
    "zero_where_first",
]
