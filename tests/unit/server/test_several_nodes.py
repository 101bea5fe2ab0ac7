"""Whole nodes of one cluster: roles, what one node does for another, and what outlives the loss of one."""

import asyncio

import pytest

from kraftlog.proto import admin_pb2, broker_pb2, controller_pb2
from kraftlog.proto.errors import (
    BrokerNotAvailableError,
    DuplicateVoterError,
    ErrorCode,
    InvalidRequestError,
    NotControllerError,
    RequestTimedOutError,
    StorageError,
    VoterNotFoundError,
)
from kraftlog.server.controller.service import FORWARD
from tests.unit.server.nodes import Nodes, directory_of, voters_of, with_nodes

COMBINED = "broker,controller"
ELECTION_TIMEOUT_S = 1.0  # the default; a random part of up to as much again is added
SESSION_TIMEOUT_S = 3.0  # the default of broker.session.timeout.ms


async def three_nodes(nodes: Nodes) -> int:
    """Started combined nodes 1 to 3; the leader of their quorum."""
    for number in (1, 2, 3):
        nodes.add(number, COMBINED, voters=voters_of(1, 2, 3))
    await nodes.start(1, 2, 3)
    return (await nodes.quorum(1)).leader_id


def others(number: int) -> list[int]:
    return [other for other in (1, 2, 3) if other != number]


def test_a_topic_created_through_any_broker_is_seen_through_every_broker() -> None:
    async def work(nodes: Nodes) -> None:
        leader = await three_nodes(nodes)
        for number in (1, 2, 3):
            assert await nodes.create(number, f"topic-{number}", partitions=3) == 0
            for other in (1, 2, 3):
                assert f"topic-{number}" in await nodes.topics(other)
        cluster = await nodes.ask(
            others(leader)[0],
            "DescribeCluster",
            admin_pb2.DescribeClusterRequest(),
            admin_pb2.DescribeClusterResponse,
        )
        assert cluster.controller_id == leader
        assert {node.node_id for node in cluster.nodes if not node.fenced} == {1, 2, 3}

    with_nodes(work)


def test_producer_ids_of_different_brokers_are_different() -> None:
    async def work(nodes: Nodes) -> None:
        await three_nodes(nodes)
        ids = [
            (
                await nodes.call(
                    f"n{number}:9092",
                    "/kraftlog.v1.Broker/InitProducerId",
                    broker_pb2.InitProducerIdRequest(),
                    broker_pb2.InitProducerIdResponse,
                )
            ).producer_id
            for number in (1, 2, 3, 1, 2, 3)
        ]
        assert len(set(ids)) == 6
        assert min(ids) >= 0

    with_nodes(work)


@pytest.mark.parametrize("seed", range(1, 6))
def test_a_request_outlives_the_loss_of_the_leader(seed: int) -> None:
    """It is passed on to the next leader under the same request id: done once, whether the first one did it or not."""

    async def work(nodes: Nodes) -> None:
        leader = await three_nodes(nodes)
        asked = others(leader)[0]
        creating = [asyncio.ensure_future(nodes.create(asked, f"t{number}")) for number in range(10)]
        await asyncio.sleep(0.001 * seed)
        nodes.kill(leader)
        assert await asyncio.gather(*creating) == [0] * 10
        assert {f"t{number}" for number in range(10)} <= set(await nodes.topics(others(leader)[1]))
        assert (await nodes.quorum(asked)).leader_id != leader

    with_nodes(work, seed=seed)


@pytest.mark.parametrize("seed", range(1, 6))
def test_a_request_that_waits_for_an_election_is_done_right_after_it(seed: int) -> None:
    """The pauses between the attempts have grown by then; they must not go on behind the election."""

    async def work(nodes: Nodes) -> None:
        leader = await three_nodes(nodes)
        nodes.kill(leader)
        started = nodes.loop.time()
        assert await nodes.create(others(leader)[seed % 2], "after") == 0
        assert nodes.loop.time() - started < 2 * ELECTION_TIMEOUT_S

    with_nodes(work, seed=seed)


def test_a_leader_that_stops_in_order_hands_over_and_its_broker_leaves() -> None:
    async def work(nodes: Nodes) -> None:
        leader = await three_nodes(nodes)
        left = others(leader)
        await nodes.stop(leader)
        assert await nodes.create(left[0], "after") == 0
        cluster = await nodes.ask(
            left[1], "DescribeCluster", admin_pb2.DescribeClusterRequest(), admin_pb2.DescribeClusterResponse
        )
        assert {node.node_id for node in cluster.nodes if not node.fenced} == set(left)
        await nodes.start(leader)
        assert "after" in await nodes.topics(leader)

    with_nodes(work)


def test_brokers_and_controllers_may_be_nodes_of_their_own() -> None:
    async def work(nodes: Nodes) -> None:
        for number in (1, 2, 3):
            nodes.add(number, "controller", voters=voters_of(1, 2, 3))
        for number in (11, 12):
            nodes.add(number, "broker", voters={})
        await nodes.start(1, 2, 3, 11, 12)
        assert await nodes.create(12, "spread", partitions=4) == 0
        assert "spread" in await nodes.topics(11)
        quorum = await nodes.quorum(11)
        assert [voter.node_id for voter in quorum.voters] == [1, 2, 3]
        assert [observer.node_id for observer in quorum.observers] == [11, 12]
        assert all((each.host, each.port) == (f"n{each.node_id}", 9093) for each in quorum.voters)
        nodes.kill(quorum.leader_id)
        assert await nodes.create(11, "after") == 0
        assert "after" in await nodes.topics(12)
        for directory_id in (b"", directory_of(11)):
            with pytest.raises(InvalidRequestError, match=r"process\.roles"):
                await nodes.ask(
                    12,
                    "AddVoter",
                    admin_pb2.AddVoterRequest(node_id=11, directory_id=directory_id),
                    admin_pb2.AddVoterResponse,
                )

    with_nodes(work)


def test_without_a_majority_reads_say_that_they_are_stale_and_changes_time_out() -> None:
    async def work(nodes: Nodes) -> None:
        leader = await three_nodes(nodes)
        left, *gone = (leader, *others(leader))
        assert await nodes.create(left, "before") == 0
        for number in gone:
            nodes.kill(number)
        with pytest.raises(NotControllerError):
            await nodes.topics(left)
        assert await nodes.topics(left, allow_stale=True) == ["before"]
        request = admin_pb2.CreateTopicsRequest(topics=[admin_pb2.NewTopic(name="lost")], timeout_ms=3_000)
        with pytest.raises(RequestTimedOutError):
            await nodes.ask(left, "CreateTopics", request, admin_pb2.CreateTopicsResponse)
        with pytest.raises(RequestTimedOutError):
            await nodes.quorum(left)
        began = nodes.loop.time()
        described = await nodes.quorum(left, allow_stale=True)
        assert nodes.loop.time() - began < 3  # an operator looks on
        assert described.stale
        assert described.described_by == left
        await nodes.start(*gone)
        assert "before" in await nodes.topics(left)

    with_nodes(work)


def test_a_node_waits_for_its_quorum_and_its_clients_are_told() -> None:
    async def work(nodes: Nodes) -> None:
        for number in (1, 2, 3):
            nodes.add(number, COMBINED, voters=voters_of(1, 2, 3))
        nodes.launch(1)
        await asyncio.sleep(1)  # its listener is open by then
        with pytest.raises(BrokerNotAvailableError, match="is starting"):
            await nodes.topics(1)
        nodes.launch(2)
        await nodes.ready(1, 2)
        assert await nodes.create(1, "two-of-three") == 0

    with_nodes(work)


def test_a_node_that_waits_for_its_quorum_can_be_stopped() -> None:
    async def work(nodes: Nodes) -> None:
        for number in (1, 2, 3):
            nodes.add(number, COMBINED, voters=voters_of(1, 2, 3))
        nodes.launch(1)
        await asyncio.sleep(5)
        starting = nodes.machines[1].starting
        assert starting is not None
        assert not starting.done()
        starting.cancel()
        await nodes.stop(1)
        await nodes.start(1, 2)
        assert await nodes.create(2, "later") == 0

    with_nodes(work)


def test_voters_are_added_and_removed_and_leadership_moves_through_any_broker() -> None:
    async def work(nodes: Nodes) -> None:
        nodes.add(1, COMBINED, voters=voters_of(1))
        for number in (2, 3):
            nodes.add(number, COMBINED, voters={})
        await nodes.start(1, 2, 3)

        async def ask(number: int, method: str, request: object, response: type) -> object:
            return await nodes.ask(number, method, request, response)  # type: ignore[arg-type]

        for number in (2, 3):
            await ask(3, "AddVoter", admin_pb2.AddVoterRequest(node_id=number), admin_pb2.AddVoterResponse)
        assert [voter.node_id for voter in (await nodes.quorum(2)).voters] == [1, 2, 3]
        with pytest.raises(DuplicateVoterError):
            await ask(1, "AddVoter", admin_pb2.AddVoterRequest(node_id=3), admin_pb2.AddVoterResponse)
        with pytest.raises(VoterNotFoundError, match="does not follow"):
            await ask(1, "AddVoter", admin_pb2.AddVoterRequest(node_id=9), admin_pb2.AddVoterResponse)
        moved = await nodes.ask(
            1,
            "TransferLeadership",
            admin_pb2.TransferLeadershipRequest(node_id=3),
            admin_pb2.TransferLeadershipResponse,
        )
        assert moved.leader_id == 3
        for number in (1, 2):
            await ask(1, "RemoveVoter", admin_pb2.RemoveVoterRequest(node_id=number), admin_pb2.RemoveVoterResponse)
        assert [voter.node_id for voter in (await nodes.quorum(1)).voters] == [3]
        with pytest.raises(VoterNotFoundError):
            await ask(2, "RemoveVoter", admin_pb2.RemoveVoterRequest(node_id=1), admin_pb2.RemoveVoterResponse)
        with pytest.raises(InvalidRequestError, match="only voter"):
            await ask(2, "RemoveVoter", admin_pb2.RemoveVoterRequest(node_id=3), admin_pb2.RemoveVoterResponse)
        assert await nodes.create(2, "one-voter-again") == 0

    with_nodes(work)


def test_a_voter_with_a_new_disk_joins_again_under_its_new_directory_id() -> None:
    async def work(nodes: Nodes) -> None:
        leader = await three_nodes(nodes)
        replaced = others(leader)[0]
        await nodes.create(leader, "kept")
        nodes.kill(replaced)
        machine = nodes.machines[replaced]
        machine.fs, machine.directory_id = type(machine.fs)(), directory_of(replaced, 1)
        nodes.format(machine, {})
        await nodes.start(replaced)
        await nodes.ask(
            leader, "RemoveVoter", admin_pb2.RemoveVoterRequest(node_id=replaced), admin_pb2.RemoveVoterResponse
        )
        await nodes.ask(leader, "AddVoter", admin_pb2.AddVoterRequest(node_id=replaced), admin_pb2.AddVoterResponse)
        voters = (await nodes.quorum(replaced)).voters
        assert machine.directory_id in [voter.directory_id for voter in voters]
        assert len(voters) == 3
        assert "kept" in await nodes.topics(replaced)

    with_nodes(work)


def test_an_unformatted_node_of_a_larger_cluster_does_not_start() -> None:
    """It would take itself for the only voter."""

    async def work(nodes: Nodes) -> None:
        machine = nodes.add(1, COMBINED, voters=voters_of(1))
        machine.fs = type(machine.fs)()
        nodes.format_without_voters(machine)
        with pytest.raises(StorageError, match="kraftctl storage format"):
            await nodes.start(1)

    with_nodes(work)


def test_what_is_passed_on_is_checked() -> None:
    async def work(nodes: Nodes) -> None:
        leader = await three_nodes(nodes)

        async def forward(number: int, request: controller_pb2.ForwardRequest) -> controller_pb2.ForwardResponse:
            return await nodes.call(f"n{number}:9093", FORWARD, request, controller_pb2.ForwardResponse)

        with pytest.raises(InvalidRequestError, match="no method that a controller does"):
            await forward(leader, controller_pb2.ForwardRequest(method="DescribeTopics"))
        with pytest.raises(InvalidRequestError, match="no CreateTopicsRequest"):
            await forward(leader, controller_pb2.ForwardRequest(method="CreateTopics", request=b"\xff"))
        with pytest.raises(NotControllerError, match=f"node {leader} leads"):
            await forward(others(leader)[0], controller_pb2.ForwardRequest(method="CreateTopics"))

    with_nodes(work)


def test_a_partition_outlives_its_leader() -> None:
    """Three replicas, one of them gone: another one of the in-sync replicas leads, and the third comes back into them."""

    async def work(nodes: Nodes) -> None:
        await three_nodes(nodes)
        assert await nodes.create(1, "copied", factor=3) == 0
        described = await nodes.partition(1, "copied")
        assert (len(described.in_sync_replicas), len(described.replicas)) == (3, 3)
        nodes.kill(described.leader_id)
        left = next(number for number in (1, 2, 3) if number != described.leader_id)
        await nodes.until(left, "copied", lambda now: now.leader_id not in (-1, described.leader_id))
        await nodes.start(described.leader_id)
        await nodes.until(left, "copied", lambda now: len(now.in_sync_replicas) == 3)

    with_nodes(work)


@pytest.mark.parametrize("leads_the_quorum", [False, True])
def test_the_next_record_is_acknowledged_a_session_after_the_loss_of_the_leader(leads_the_quorum: bool) -> None:
    """Neither the producer's pauses come on top, nor, where the node led the quorum too, the election of another one."""

    async def work(nodes: Nodes) -> None:
        active = await three_nodes(nodes)
        for number in range(6):
            assert await nodes.create(active, f"copied-{number}", factor=3) == 0
            leader = (await nodes.partition(active, f"copied-{number}")).leader_id
            if (leader == active) == leads_the_quorum:
                break
        async with nodes.producer() as producer:
            await producer.send_and_wait(f"copied-{number}", b"before")
            nodes.kill(leader)
            killed = nodes.loop.time()
            assert (await producer.send_and_wait(f"copied-{number}", b"after")).offset == 1
            assert nodes.loop.time() - killed < SESSION_TIMEOUT_S + 0.5

    with_nodes(work)


@pytest.mark.parametrize("seed", range(1, 4))
def test_a_leader_that_hangs_costs_a_session_and_not_a_request_timeout(seed: int) -> None:
    """It keeps its connections and says nothing, as a process that is stopped or swapped out: the producer learns from the
    others who leads, and the record is there once."""

    async def work(nodes: Nodes) -> None:
        active = await three_nodes(nodes)
        assert await nodes.create(active, "copied", factor=3) == 0
        leader = (await nodes.partition(active, "copied")).leader_id
        async with nodes.producer() as producer:
            await producer.send_and_wait("copied", b"before", partition=0)
            host = nodes.machines[leader].host
            for other in (*(nodes.machines[number].host for number in others(leader)), "client"):
                nodes.network.partition(host, other, both_ways=False)
            hung = nodes.loop.time()
            assert (await producer.send_and_wait("copied", b"after", partition=0)).offset == 1
            # the session, the quorum's own election if it led that, and what the producer adds
            assert nodes.loop.time() - hung < SESSION_TIMEOUT_S + 6
            nodes.network.heal()
            assert (await producer.send_and_wait("copied", b"more", partition=0)).offset == 2

    with_nodes(work, seed=seed)


def test_a_leader_with_an_empty_disk_does_not_lead() -> None:
    """It is back before anybody has missed it, and the metadata say that it leads: its followers would cut their logs to
    nothing. It leads nothing before the controller has seen that its disk is another one."""

    async def work(nodes: Nodes) -> None:
        await three_nodes(nodes)
        assert await nodes.create(1, "copied", factor=3) == 0
        leader = (await nodes.partition(1, "copied")).leader_id
        async with nodes.producer() as producer:
            await producer.send_and_wait("copied", b"acknowledged", partition=0)
        nodes.kill(leader)
        machine = nodes.machines[leader]
        machine.fs, machine.directory_id = type(machine.fs)(), directory_of(leader, 1)
        nodes.format(machine, {})
        await nodes.start(leader)
        await nodes.until(others(leader)[0], "copied", lambda now: len(now.in_sync_replicas) == 3)
        for number in (1, 2, 3):
            node = nodes.machines[number].node
            assert node is not None
            assert node.partitions["copied", 0].log.log_end_offset == 1

    with_nodes(work)


def test_more_replicas_than_brokers_are_refused() -> None:
    async def work(nodes: Nodes) -> None:
        await three_nodes(nodes)
        assert await nodes.create(1, "copied", factor=4) == ErrorCode.INVALID_REPLICATION_FACTOR
        assert await nodes.create(2, "default", factor=-1) == 0
        assert len((await nodes.partition(3, "default")).replicas) == 3

    with_nodes(work)
