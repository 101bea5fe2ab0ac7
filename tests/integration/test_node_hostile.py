"""Hostile bytes for every method: each is answered or refused with an error of ours, and the node goes on.

The handlers are called as a transport calls them, with bytes, so that thousands of mutants take seconds.
"""

import asyncio
import contextlib
import os
import random
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from kraftlog.logstore import RealFileSystem
from kraftlog.proto import admin_pb2, broker_pb2, controller_pb2, group_pb2, hotpath
from kraftlog.proto.errors import KraftlogError
from kraftlog.proto.replica_frames import (
    REPLICA_FRAMES,
    REPLICATE,
    ReplicaCredit,
    ReplicaFollow,
    ReplicaHello,
    ReplicaReport,
    ReplicaUnfollow,
)
from kraftlog.proto.seams import CallContext, Handlers, Payload
from kraftlog.server.config import NodeConfig
from kraftlog.server.node import Node
from kraftlog.server.seams import SystemClock, ThreadExecutor
from tests.integration.node_harness import CapturingNetwork, batch, format_directory, position, produce_request

MUTANTS = int(os.environ.get("KRAFTLOG_EXAMPLES", "100"))
B, G, A = "/kraftlog.v1.Broker/", "/kraftlog.v1.Group/", "/kraftlog.v1.Admin/"
C = "/kraftlog.v1.Controller/"


class ScriptedStream:
    """A client's stream that was recorded: its messages, then its end."""

    def __init__(self, messages: list[bytes]) -> None:
        self._messages = messages
        self.sent: list[Payload] = []

    async def send(self, message: Payload) -> None:
        self.sent.append(message)

    async def receive(self) -> bytes | None:
        await asyncio.sleep(0)
        return self._messages.pop(0) if self._messages else None

    async def finish(self) -> None:
        return

    def cancel(self) -> None:
        return


@contextlib.asynccontextmanager
async def served(path: Path) -> AsyncIterator[Handlers]:
    format_directory(path)
    network = CapturingNetwork()
    executor = ThreadExecutor(2)
    config = NodeConfig.from_properties({"log.dirs": str(path), "offsets.topic.num.partitions": "1"})
    node = Node(
        config,
        clock=SystemClock(),
        random=random.Random(1),
        fs=RealFileSystem(),
        network=network,
        executor=executor,
    )
    try:
        await node.start()
        create = admin_pb2.CreateTopicsRequest(
            topics=[admin_pb2.NewTopic(name="orders", num_partitions=2, replication_factor=1)]
        )
        await network.handlers.unary[A + "CreateTopics"](create.SerializeToString(), CallContext())
        yield network.handlers
    finally:
        await node.stop()
        executor.close()


def encoded(message: hotpath.Message) -> bytes:
    return b"".join(hotpath.encode(message))


def good_requests() -> dict[str, bytes]:
    """A request of each unary method that is answered."""
    group = "readers"
    messages = {
        B + "ListOffsets": broker_pb2.ListOffsetsRequest(
            partitions=[broker_pb2.ListOffsetsPartition(topic="orders", timestamp=-1, current_leader_epoch=-1)]
        ),
        B + "Metadata": broker_pb2.MetadataRequest(topics=["orders"], allow_auto_topic_creation=True),
        B + "InitProducerId": broker_pb2.InitProducerIdRequest(producer_id=-1, producer_epoch=-1),
        A + "CreateTopics": admin_pb2.CreateTopicsRequest(
            topics=[admin_pb2.NewTopic(name="other", num_partitions=1, replication_factor=1, configs={"a": "b"})],
            validate_only=True,
        ),
        A + "DeleteTopics": admin_pb2.DeleteTopicsRequest(names=["absent"]),
        A + "DeleteRecords": admin_pb2.DeleteRecordsRequest(
            partitions=[admin_pb2.DeleteRecordsPartition(topic="orders", before_offset=0)]
        ),
        A + "DescribeTopics": admin_pb2.DescribeTopicsRequest(names=["orders"]),
        A + "DescribeConfigs": admin_pb2.DescribeConfigsRequest(
            resources=[admin_pb2.ConfigResource(type=2, name="orders")]
        ),
        A + "DescribeCluster": admin_pb2.DescribeClusterRequest(),
        A + "CreatePartitions": admin_pb2.CreatePartitionsRequest(
            topics=[admin_pb2.NewPartitions(name="orders", total_count=9)], validate_only=True, request_id=bytes(16)
        ),
        A + "IncrementalAlterConfigs": admin_pb2.IncrementalAlterConfigsRequest(
            resources=[
                admin_pb2.AlterConfigsResource(
                    resource=admin_pb2.ConfigResource(type=2, name="orders"),
                    changes=[admin_pb2.ConfigChange(name="retention.ms", value="5")],
                )
            ],
            validate_only=True,
        ),
        A + "DescribeLogDirs": admin_pb2.DescribeLogDirsRequest(topics=["orders"]),
        A + "ElectLeaders": admin_pb2.ElectLeadersRequest(
            topics=[admin_pb2.ElectionTopic(name="orders", partitions=[0, 1])]
        ),
        A + "AlterPartitionReassignments": admin_pb2.AlterPartitionReassignmentsRequest(
            partitions=[
                admin_pb2.PartitionReassignment(
                    topic="orders", partition=1, target=admin_pb2.ReplicaAssignment(replicas=[1])
                )
            ]
        ),
        A + "ListPartitionReassignments": admin_pb2.ListPartitionReassignmentsRequest(topics=["orders"]),
        A + "UpdateFeatures": admin_pb2.UpdateFeaturesRequest(
            updates=[admin_pb2.FeatureUpdate(name="metadata.version", level=1)], validate_only=True
        ),
        A + "UnregisterBroker": admin_pb2.UnregisterBrokerRequest(node_id=77, request_id=bytes(16)),
        A + "DescribeQuorum": admin_pb2.DescribeQuorumRequest(allow_stale=True),
        A + "AddVoter": admin_pb2.AddVoterRequest(node_id=2, directory_id=bytes(16), host="localhost", port=9),
        A + "RemoveVoter": admin_pb2.RemoveVoterRequest(node_id=1),
        A + "TransferLeadership": admin_pb2.TransferLeadershipRequest(node_id=1),
        C + "Forward": controller_pb2.ForwardRequest(
            method="DeleteTopics",
            request=admin_pb2.DeleteTopicsRequest(names=["absent"]).SerializeToString(),
            internal=True,
        ),
        C + "RegisterBroker": controller_pb2.RegisterBrokerRequest(
            node_id=7,
            incarnation_id=bytes(16),
            host="localhost",
            port=9,
            log_dirs=[bytes(16)],
            listeners=[controller_pb2.BrokerListener(name="PLAINTEXT", host="localhost", port=9)],
            previous_broker_epoch=-1,
            lost_replicas=[controller_pb2.LostReplica(topic_id=bytes(16), partition=3)],
            features=[controller_pb2.SupportedFeature(name="metadata.version", min_level=1, max_level=1)],
        ),
        C + "BrokerHeartbeat": controller_pb2.BrokerHeartbeatRequest(
            node_id=7, broker_epoch=9, metadata_offset=3, offline_log_dirs=[bytes(16)]
        ),
        C + "AlterPartition": controller_pb2.AlterPartitionRequest(
            node_id=7,
            broker_epoch=9,
            changes=[
                controller_pb2.InSyncChange(
                    topic_id=bytes(16),
                    in_sync_replicas=[controller_pb2.InSyncReplica(node_id=7, broker_epoch=9)],
                )
            ],
        ),
        C + "AllocateProducerIds": controller_pb2.AllocateProducerIdsRequest(
            node_id=7, broker_epoch=9, count=10, request_id=bytes(16)
        ),
        G + "FindCoordinator": group_pb2.FindCoordinatorRequest(key="readers"),
        G + "JoinGroup": group_pb2.JoinGroupRequest(
            group_id=group,
            session_timeout_ms=10_000,
            rebalance_timeout_ms=10_000,
            protocol_type="consumer",
            protocols=[group_pb2.GroupProtocol(name="range", metadata=b"x")],
        ),
        G + "SyncGroup": group_pb2.SyncGroupRequest(group_id=group, generation_id=1, member_id="m"),
        G + "Heartbeat": group_pb2.HeartbeatRequest(group_id=group, generation_id=1, member_id="m"),
        G + "LeaveGroup": group_pb2.LeaveGroupRequest(group_id=group, member_id="m"),
        G + "OffsetCommit": group_pb2.OffsetCommitRequest(
            group_id=group,
            generation_id=-1,
            partitions=[group_pb2.OffsetCommitPartition(topic="orders", offset=1, leader_epoch=-1)],
        ),
        G + "OffsetFetch": group_pb2.OffsetFetchRequest(group_id=group, all_partitions=True),
        G + "ListGroups": group_pb2.ListGroupsRequest(),
        G + "DescribeGroups": group_pb2.DescribeGroupsRequest(group_ids=["readers"]),
    }
    requests = {name: message.SerializeToString() for name, message in messages.items()}
    requests[B + "Produce"] = encoded(produce_request("orders", batch(b"value")))
    requests[B + "Fetch"] = encoded(hotpath.FetchRequest(max_bytes=1000, partitions=[position("orders")]))
    requests["/grpc.health.v1.Health/Check"] = b""
    return requests


def mutated(chooser: random.Random, data: bytes) -> bytes:
    """Bits flipped, bytes cut, doubled, inserted or replaced."""
    changed = bytearray(data)
    for _ in range(chooser.randrange(1, 4)):
        place = chooser.randrange(len(changed) + 1)
        match chooser.randrange(5):
            case 0 if place < len(changed):
                changed[place] ^= 1 << chooser.randrange(8)
            case 1:
                del changed[place:]
            case 2:
                changed[place:place] = chooser.randbytes(chooser.randrange(1, 9))
            case 3:
                changed[place:place] = changed[: chooser.randrange(40)]
            case _:
                changed[place : place + 4] = b"\xff\xff\xff\xff"
    return bytes(changed)


@pytest.mark.slow
async def test_every_method_survives_mutated_requests(tmp_path: Path) -> None:
    """Answered, or refused with an error of ours; nothing else is raised, and a good request is answered after all."""
    seed = random.randrange(2**32)
    print(f"seed={seed}")
    chooser = random.Random(seed)
    async with served(tmp_path / "data") as handlers:
        requests = good_requests()
        assert requests.keys() == handlers.unary.keys()
        for name, good in requests.items():
            for _ in range(MUTANTS):
                data = mutated(chooser, good)
                call = handlers.unary[name](data, CallContext(peer="ipv4:127.0.0.1:5"))
                with contextlib.suppress(KraftlogError, TimeoutError):  # a long poll or a join may rightly wait
                    await asyncio.wait_for(call, 0.05)
        for name in (B + "Produce", B + "Metadata", A + "DescribeCluster"):
            assert await asyncio.wait_for(handlers.unary[name](requests[name], CallContext()), 5)


@pytest.mark.slow
async def test_streams_survive_mutated_messages(tmp_path: Path) -> None:
    """A stream with hostile messages ends with an error of ours or in order, and leaves nothing behind."""
    seed = random.randrange(2**32)
    print(f"seed={seed}")
    chooser = random.Random(seed)
    produce = [encoded(produce_request("orders", batch(b"value"), correlation_id=number)) for number in range(3)]
    params = hotpath.FetchRequest(max_wait_ms=1, min_bytes=1, max_bytes=1000)
    fetch = [
        encoded(hotpath.FetchControl(params=params, set=[position("orders")], credit_bytes=1000)),
        encoded(hotpath.FetchControl(set=[position("orders", 1, generation=2)], credit_bytes=1000)),
        encoded(hotpath.FetchControl(forget=[hotpath.TopicPartition("orders", 0)])),
    ]
    replicate = [
        b"".join(REPLICA_FRAMES.encode(body))
        for body in (
            ReplicaHello("test-cluster", 7, 9, 1),
            ReplicaFollow(1, bytes(16), 0, 0, 0, -1, 0, 0),
            ReplicaCredit(1 << 20),
            ReplicaReport(1, 0, 0),
            ReplicaUnfollow(1),
        )
    ]
    async with served(tmp_path / "data") as handlers:
        streams = {B + "ProduceStream": produce, B + "FetchStream": fetch, REPLICATE: replicate}
        for name, messages in streams.items():
            for _ in range(MUTANTS):
                script = [mutated(chooser, message) if chooser.random() < 0.5 else message for message in messages]
                with contextlib.suppress(KraftlogError, TimeoutError):
                    await asyncio.wait_for(handlers.streams[name](ScriptedStream(script), CallContext()), 1)
        good = ScriptedStream(list(produce))
        await asyncio.wait_for(handlers.streams[B + "ProduceStream"](good, CallContext()), 5)
        assert len(good.sent) == 3
