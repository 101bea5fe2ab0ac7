"""A node in this process with real gRPC on a port of the kernel's choice, and clients for it.

`RawClient` speaks hand-framed hot-path messages over the SDK's transport; `stubs` are the generated classes that a client
in any language would use.
"""

import contextlib
import random
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar, cast

import grpc
import grpc.aio
from google.protobuf.message import Message

from kraftlog.logstore import FileSystem, RealFileSystem, format_log_dir
from kraftlog.logstore.observer import SILENT, LogObserver
from kraftlog.proto import admin_pb2, admin_pb2_grpc, broker_pb2, broker_pb2_grpc, group_pb2_grpc, hotpath
from kraftlog.proto.records import BatchBuilder, CompressionType, decode_records
from kraftlog.proto.seams import BlockingExecutor, Channel, Clock, Handlers, Network, Server, Stream
from kraftlog.proto.security import Security
from kraftlog.sdk.transport import GrpcConnector
from kraftlog.server.config import NodeConfig
from kraftlog.server.grpc import GrpcNetwork
from kraftlog.server.node import Node
from kraftlog.server.seams import SystemClock, ThreadExecutor

Response = TypeVar("Response", bound=Message)

DIRECTORY_ID = "AAAAAAAAAAAAAAAAAAAAAQ"
BROKER = "/kraftlog.v1.Broker/"
TIMEOUT_MS = 20_000


def batch(
    *values: bytes,
    compression: CompressionType = CompressionType.NONE,
    producer_id: int = -1,
    producer_epoch: int = -1,
    base_sequence: int = -1,
) -> bytes:
    """One batch of records without keys, stamped now."""
    builder = BatchBuilder(compression_type=compression)
    for value in values:
        builder.append(SystemClock().wall_ms(), None, value)
    return builder.build(producer_id=producer_id, producer_epoch=producer_epoch, base_sequence=base_sequence)


def produce_request(
    topic: str, records: bytes, *, partition: int = 0, acks: int = -1, correlation_id: int = 0
) -> hotpath.ProduceRequest:
    part = hotpath.PartitionRecords(topic, partition, records)
    return hotpath.ProduceRequest(correlation_id=correlation_id, acks=acks, timeout_ms=10_000, partitions=[part])


def position(topic: str, offset: int = 0, *, partition: int = 0, generation: int = 1) -> hotpath.FetchPosition:
    return hotpath.FetchPosition(topic, partition, offset, generation, current_leader_epoch=-1, last_fetched_epoch=-1)


def records_of(chunk: hotpath.PartitionChunk) -> bytes:
    records = chunk.records
    return bytes(cast(bytes, records))  # decoded: one buffer


def values_of(chunk: hotpath.PartitionChunk) -> list[bytes | None]:
    """The values of a chunk's records."""
    return [record.value for record in decode_records(records_of(chunk))]


class RawClient:
    """Hot-path messages as bytes, everything else as protobuf, over one channel."""

    def __init__(self, address: str) -> None:
        self.channel: Channel = GrpcConnector().connect(address)

    async def produce(self, request: hotpath.ProduceRequest) -> hotpath.ProduceResult:
        """A request for one partition."""
        answer = await self.channel.unary(BROKER + "Produce", hotpath.encode(request), timeout_ms=TIMEOUT_MS)
        [result] = hotpath.decode_produce_response(answer).partitions
        return result

    async def fetch(self, request: hotpath.FetchRequest) -> hotpath.FetchChunk:
        answer = await self.channel.unary(BROKER + "Fetch", hotpath.encode(request), timeout_ms=TIMEOUT_MS)
        return hotpath.decode_fetch_chunk(answer)

    async def call(self, method: str, request: Message, response: type[Response]) -> Response:
        answer = await self.channel.unary("/kraftlog.v1." + method, request.SerializeToString(), timeout_ms=TIMEOUT_MS)
        return response.FromString(answer)

    async def create_topic(self, name: str, partitions: int = 1, **configs: str) -> admin_pb2.CreateTopicResult:
        """Configs are given in snake case."""
        dotted = {key.replace("_", "."): value for key, value in configs.items()}
        topic = admin_pb2.NewTopic(name=name, num_partitions=partitions, replication_factor=1, configs=dotted)
        request = admin_pb2.CreateTopicsRequest(topics=[topic])
        response = await self.call("Admin/CreateTopics", request, admin_pb2.CreateTopicsResponse)
        return response.topics[0]

    def stream(self, method: str) -> Stream:
        return self.channel.stream(BROKER + method)


class CapturingNetwork:
    """A network that only keeps what it was asked to serve, for tests that call handlers with bytes."""

    def __init__(self, on_serve: Callable[[Handlers], None] | None = None) -> None:
        self.handlers = Handlers()
        self._on_serve = on_serve

    def connect(self, address: str) -> Channel:
        raise AssertionError(f"nobody connects to {address}")

    async def serve(self, address: str, handlers: Handlers) -> Server:
        self.handlers = handlers
        if self._on_serve is not None:
            self._on_serve(handlers)
        return _Listener()

    def secured(self, security: Security) -> Network:
        return self


class _Listener:
    address = "127.0.0.1:1"

    async def stop(self, grace_ms: float) -> None:
        return


@dataclass
class Stubs:
    """What protoc generates, over a channel of its own."""

    broker: Any
    admin: Any
    group: Any


@contextlib.asynccontextmanager
async def stubs(address: str) -> AsyncIterator[Stubs]:
    async with grpc.aio.insecure_channel(address) as channel:
        yield Stubs(
            broker_pb2_grpc.BrokerStub(channel),
            admin_pb2_grpc.AdminStub(channel),
            group_pb2_grpc.GroupStub(channel),
        )


def format_directory(path: Path, cluster_id: str = "test-cluster", fs: FileSystem | None = None) -> None:
    format_log_dir(str(path), fs or RealFileSystem(), cluster_id=cluster_id, node_id=1, directory_id=DIRECTORY_ID)


def make_node(
    path: Path,
    executor: BlockingExecutor,
    more: Mapping[str, str] | None = None,
    fs: FileSystem | None = None,
    network: Network | None = None,
    clock: Clock | None = None,
    log_observer: LogObserver = SILENT,
) -> Node:
    pairs = {
        "node.id": "1",
        "listeners": "PLAINTEXT://127.0.0.1:0",
        "log.dirs": str(path),
        "offsets.topic.num.partitions": "2",
        "group.initial.rebalance.delay.ms": "0",
        **(more or {}),
    }
    return Node(
        NodeConfig.from_properties(pairs),
        clock=clock or SystemClock(),
        random=random.Random(1),
        fs=fs or RealFileSystem(),
        network=network or GrpcNetwork(),
        executor=executor,
        log_observer=log_observer,
    )


@contextlib.asynccontextmanager
async def running_node(
    path: Path,
    more: Mapping[str, str] | None = None,
    fs: FileSystem | None = None,
    clock: Clock | None = None,
    log_observer: LogObserver = SILENT,
) -> AsyncIterator[Node]:
    """A node on `path`, which is formatted unless it is already; stopped in order at the end."""
    format_directory(path, fs=fs)
    executor = ThreadExecutor(2)
    node = make_node(path, executor, more, fs, clock=clock, log_observer=log_observer)
    try:
        await node.start()
        yield node
    finally:
        await node.stop()
        executor.close()


@contextlib.asynccontextmanager
async def client_of(node: Node) -> AsyncIterator[RawClient]:
    client = RawClient(node.address)
    try:
        yield client
    finally:
        await client.channel.close()


def latest(topic: str, partition: int = 0, timestamp: int = -1) -> broker_pb2.ListOffsetsRequest:
    asked = broker_pb2.ListOffsetsPartition(
        topic=topic, partition=partition, timestamp=timestamp, current_leader_epoch=-1
    )
    return broker_pb2.ListOffsetsRequest(partitions=[asked])
