"""The controller: decides about topics, partitions, configs, brokers and producer ids, and keeps their state.

State changes only in `replay`. Managers' operations return `Result(records, response)`; `Controller` appends the
records as one batch, replays them at once, and answers when they are committed. Nothing here does I/O.
"""

from kraftlog.kraft.controller import operations
from kraftlog.kraft.controller.brokers import BrokerRegistration, HeartbeatReply
from kraftlog.kraft.controller.config import ControllerConfig
from kraftlog.kraft.controller.configs import ConfigSchema
from kraftlog.kraft.controller.controller import AppendTarget, Completion, Controller, UncleanElection
from kraftlog.kraft.controller.features import SUPPORTED_FEATURES
from kraftlog.kraft.controller.in_sync_replicas import IsrAnswer, IsrChange
from kraftlog.kraft.controller.operations import OperationKind, RequestId
from kraftlog.kraft.controller.producer_ids import ProducerIdBlock
from kraftlog.kraft.controller.result import Result

__all__ = [
    "SUPPORTED_FEATURES",
    "AppendTarget",
    "BrokerRegistration",
    "Completion",
    "ConfigSchema",
    "Controller",
    "ControllerConfig",
    "HeartbeatReply",
    "IsrAnswer",
    "IsrChange",
    "OperationKind",
    "ProducerIdBlock",
    "RequestId",
    "Result",
    "UncleanElection",
    "operations",
]
