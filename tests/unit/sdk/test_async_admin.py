"""The asyncio admin client against a cluster in memory, on virtual time."""

import asyncio
import random

from kraftlog.sdk.admin import AsyncAdmin
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
