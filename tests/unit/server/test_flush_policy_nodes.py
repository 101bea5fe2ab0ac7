"""A topic goes from flush.policy=interval to ack while it is in use: whole nodes, on virtual time."""

import asyncio

import pytest

from kraftlog.proto import admin_pb2
from tests.unit.server.nodes import Nodes, with_nodes
from tests.unit.server.test_returning_brokers import Client, create, fill, read, three_nodes

BROKERS = (1, 2, 3)


async def set_policy(nodes: Nodes, topic: str, policy: str) -> None:
    change = admin_pb2.ConfigChange(name="flush.policy", operation=admin_pb2.ConfigChange.SET, value=policy)
    resource = admin_pb2.AlterConfigsResource(resource=admin_pb2.ConfigResource(type=2, name=topic), changes=[change])
    request = admin_pb2.IncrementalAlterConfigsRequest(resources=[resource], timeout_ms=30_000)
    response = await nodes.ask(1, "IncrementalAlterConfigs", request, admin_pb2.IncrementalAlterConfigsResponse)
    assert response.resources[0].error_code == 0, response


@pytest.mark.parametrize("factor", [1, 3])
def test_what_was_acknowledged_from_memory_outlives_a_power_loss_of_all_after_the_switch(factor: int) -> None:
    """Nobody writes any more: the switch alone has it flushed, and its state is there for operators to see."""

    async def work(nodes: Nodes) -> None:
        await three_nodes(nodes)
        described = await create(nodes, "data", factor=factor, flush_policy="interval")
        assert not described.flushed
        values = await fill(nodes, described.leader_id, "data", 10)
        await set_policy(nodes, "data", "ack")
        await nodes.until(1, "data", lambda now: now.flushed, seconds=1)
        for number in BROKERS:
            nodes.kill(number)
        await nodes.start(*BROKERS)
        await nodes.until(1, "data", lambda now: now.leader_id > 0 and len(now.in_sync_replicas) == factor)
        described = await nodes.partition(1, "data")
        assert not described.recovering
        assert await read(nodes, described.leader_id, "data") == values

    with_nodes(work)


def test_power_loss_of_all_during_the_switch_is_never_taken_for_harmless() -> None:
    """Whenever it comes: either everything is there, or nobody leads until somebody takes the loss (at RF 3)."""

    async def work(nodes: Nodes) -> None:
        await three_nodes(nodes)
        outcomes: set[bool] = set()
        for attempt in range(8):
            topic = f"data-{attempt}"
            described = await create(nodes, topic, factor=3, flush_policy="interval")
            values = await fill(nodes, described.leader_id, topic, 3)
            change = asyncio.ensure_future(set_policy(nodes, topic, "ack"))
            await asyncio.sleep(attempt * 0.003)
            for number in BROKERS:
                nodes.kill(number)
            change.cancel()
            await asyncio.wait([change])
            await nodes.start(*BROKERS)
            await asyncio.sleep(5)
            described = await nodes.partition(1, topic)
            outcomes.add(described.leader_id > 0)
            if described.leader_id > 0:
                assert await read(nodes, described.leader_id, topic) == values, attempt
        assert False in outcomes, "none of the power losses came before the switch was in effect"

    with_nodes(work)


def test_writes_go_on_through_switches_to_and_fro() -> None:
    """Each acknowledgment says which policy held; a switch back is in effect at once."""

    async def work(nodes: Nodes) -> None:
        await three_nodes(nodes)
        described = await create(nodes, "data", factor=3)
        client = Client(nodes, described.leader_id)
        for policy, durability in (("interval", "quorum-memory"), ("ack", "quorum-fsync")) * 2:
            await set_policy(nodes, "data", policy)
            while (result := await client.produce("data", policy.encode())).durability != durability:
                assert result.error_code == 0
                await asyncio.sleep(0.01)
            await nodes.until(1, "data", lambda now, is_ack=policy == "ack": now.flushed == is_ack, seconds=1)
        await client.channel.close()

    with_nodes(work)
