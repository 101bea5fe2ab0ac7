"""The consumer: fetches ahead by credit, alone or as a member of a group."""

from kraftlog.sdk.consumer.async_consumer import AsyncConsumer
from kraftlog.sdk.consumer.commits import CommitFailedError
from kraftlog.sdk.consumer.listener import ConsumerRebalanceListener
from kraftlog.sdk.consumer.sync_consumer import Consumer

__all__ = ["AsyncConsumer", "CommitFailedError", "Consumer", "ConsumerRebalanceListener"]
