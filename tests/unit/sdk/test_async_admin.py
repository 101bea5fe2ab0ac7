"""The asyncio admin client against a cluster in memory, on virtual time."""

import asyncio
import random

import pytest

from kraftlog.proto.errors import BrokerNotAvailableError, KraftlogError, RequestTimedOutError
from kraftlog.sdk.admin import AsyncAdmin
from kraftlog.sdk.types import NewTopic
from kraftlog.testing.loop import run_virtual
from tests.unit.sdk.fake_broker import FakeCluster


def test_a_controller_that_hangs_is_passed_over() -> None:
    """A node under SIGSTOP answers nothing and keeps its connections: the others, who pass requests on to whoever leads since,
    are asked, and without a wait for it each time."""

    async def main() -> None:
        cluster = FakeCluster(brokers=3)
        cluster.create("t")
        options = {"request_timeout_ms": 1_000, "default_api_timeout_ms": 3_000}
        async with AsyncAdmin(
            options, bootstrap_servers="broker1:9092", connector=cluster.connector(), random=random.Random(7)
        ) as admin:
            await admin.describe_topics(["t"])
            cluster.frozen.add(1)
            for _ in range(20):
                (description,) = await admin.describe_topics(["t"])
                assert description.name == "t"
            asked = [node for node, method in cluster.calls if method == "DescribeTopics"]
            assert asked.count(1) <= 2

    run_virtual(main(), max_seconds=60)


def test_a_node_that_is_cut_off_is_passed_over_while_the_controller_is_avoided() -> None:
    """It is the one that did not answer, not the controller that would have been asked in its place."""

    async def main() -> None:
        cluster = FakeCluster(brokers=3)
        cluster.create("t")
        options = {"request_timeout_ms": 1_000, "default_api_timeout_ms": 5_000}
        async with AsyncAdmin(
            options, bootstrap_servers="broker1:9092", connector=cluster.connector(), random=random.Random(7)
        ) as admin:
            cluster.cut_off.add(1)
            await admin.describe_topics(["t"])
            cluster.cut_off.add(2)
            loop = asyncio.get_running_loop()
            begin = loop.time()
            for _ in range(20):
                await admin.describe_topics(["t"])
            assert loop.time() - begin < 2.0, "more than one of these waited for a broker that does not answer"

    run_virtual(main(), max_seconds=60)


def test_a_topic_that_is_made_while_the_brokers_restart() -> None:
    """The creation is committed; that nobody answers for a moment, while the client waits to see it, takes nothing back. Where
    it stays so, the error says that the topic was created."""

    async def main() -> None:
        cluster = FakeCluster(brokers=2)
        silent = 0

        def on_unary(node: int, method: str, data: bytes) -> KraftlogError | None:
            nonlocal silent
            if method != "Metadata" or not silent or not cluster.topics:
                return None
            silent -= 1
            return BrokerNotAvailableError(f"cannot reach broker {node}")

        cluster.on_unary = on_unary
        async with AsyncAdmin(
            {"request_timeout_ms": 5_000},
            bootstrap_servers="broker1:9092",
            connector=cluster.connector(),
            random=random.Random(7),
        ) as admin:
            silent = 6
            await admin.create_topics([NewTopic("orders", 1)])
            assert not silent
            assert (await admin.describe_topics(["orders"]))[0].name == "orders"
            silent = 2
            assert await admin.list_group_offsets("nobody") == []
            assert not silent
            silent = 1_000_000
            with pytest.raises(RequestTimedOutError, match=r"created, but .* payments .*: cannot reach broker [12]"):
                await admin.create_topics([NewTopic("payments", 1)])
            silent = 0
            assert (await admin.describe_topics(["payments"]))[0].name == "payments"

    run_virtual(main(), max_seconds=60)
