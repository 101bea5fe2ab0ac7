"""A cluster in memory behind a fake `Connector`: enough of the broker's rules to test the client against.

It keeps real record batches, checks idempotent sequences with the last five batches as a broker does, runs fetch
streams by credit and generation, and coordinates groups by the classic protocol. Faults are injected by hooks:
`on_produce` decides about one batch before or after it is appended, `on_unary` about one call, `is_down` about a node.
"""

import asyncio
import itertools
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

from kraftlog.proto import admin_pb2, broker_pb2, group_pb2
from kraftlog.proto.errors import (
    BrokerNotAvailableError,
    ErrorCode,
    IllegalGenerationError,
    KraftlogError,
    NetworkError,
    OffsetOutOfRangeError,
    OutOfOrderSequenceNumberError,
    RebalanceInProgressError,
    RequestTimedOutError,
    UnknownMemberIdError,
    UnknownTopicOrPartitionError,
    code_of,
)
from kraftlog.proto.hotpath import (
    AbortedTransaction,
    FetchChunk,
    FetchPosition,
    PartitionChunk,
    ProduceResponse,
    ProduceResult,
    decode_fetch_control,
    decode_produce_request,
    encode,
)
from kraftlog.proto.records import decode_records, read_header, rewrite_header, validate_batches
from kraftlog.proto.seams import Payload

MASK = 0x7FFF_FFFF
LOSE_CONNECTION = -1000
"""What `on_produce` answers to break the stream."""


@dataclass
class ProducerEntry:
    epoch: int
    batches: deque[tuple[int, int, int]] = field(default_factory=lambda: deque(maxlen=5))
    """(first sequence, last sequence, base offset)"""


@dataclass
class FakePartition:
    topic: str
    partition: int
    leader: int = 1
    leader_epoch: int = 0
    start_offset: int = 0
    batches: list[tuple[int, bytes]] = field(default_factory=list)
    """(base offset, bytes)"""
    end_offset: int = 0
    stable_end: int | None = None
    """Where read_committed fetches end; None: at the end."""
    aborted: list[tuple[int, int, int]] = field(default_factory=list)
    """(producer id, first offset, offset of the abort marker)"""
    producers: dict[int, ProducerEntry] = field(default_factory=dict)
    error_code: int = 0

    def append(self, data: bytes) -> tuple[int, bool]:
        """(base offset, is duplicate). Raises as a broker refuses."""
        (_, header), *_ = validate_batches(data, max_batch_bytes=64 << 20, allow_control=True)
        if header.producer_id >= 0 and not header.is_control:
            duplicate = self._check_sequence(header)
            if duplicate is not None:
                return duplicate, True
        stored = bytearray(data)
        rewrite_header(stored, 0, base_offset=self.end_offset, leader_epoch=self.leader_epoch)
        base = self.end_offset
        self.batches.append((base, bytes(stored)))
        self.end_offset += header.record_count
        if header.producer_id >= 0 and not header.is_control:
            entry = self.producers[header.producer_id]
            entry.batches.append((header.base_sequence, header.last_sequence, base))
        return base, False

    def _check_sequence(self, header) -> int | None:
        entry = self.producers.get(header.producer_id)
        if entry is None or header.producer_epoch > entry.epoch:
            if entry is not None and header.base_sequence != 0:
                raise OutOfOrderSequenceNumberError(f"epoch {header.producer_epoch} starts at {header.base_sequence}")
            self.producers[header.producer_id] = ProducerEntry(header.producer_epoch)
            return None
        if header.producer_epoch < entry.epoch:
            from kraftlog.proto.errors import InvalidProducerEpochError

            raise InvalidProducerEpochError(f"epoch {header.producer_epoch} is below {entry.epoch}")
        for first, last, base in entry.batches:
            if (first, last) == (header.base_sequence, header.last_sequence):
                return base
        expected = (entry.batches[-1][1] + 1) & MASK if entry.batches else 0
        if header.base_sequence != expected:
            raise OutOfOrderSequenceNumberError(f"sequence {header.base_sequence}, expected {expected}")
        return None

    def records(self):
        return [
            record
            for _, data in self.batches
            for record in decode_records(data, topic=self.topic, partition=self.partition)
        ]

    def values(self) -> list[bytes | None]:
        return [record.value for record in self.records()]

    def read(self, offset: int, max_bytes: int, end_offset: int) -> tuple[bytes, int]:
        """(whole batches from the one with `offset`, next offset; `end_offset` after a gap without batches)"""
        pieces, size, next_offset = [], 0, offset
        for base, data in self.batches:
            header = read_header(data)
            if header.next_offset <= offset or base >= end_offset:
                continue
            if pieces and size + len(data) > max_bytes:
                break
            pieces.append(data)
            size += len(data)
            next_offset = header.next_offset
        return (b"".join(pieces), next_offset) if pieces else (b"", end_offset)


@dataclass
class FakeGroup:
    group_id: str
    generation: int = 0
    state: str = "Empty"
    members: dict[str, group_pb2.JoinGroupRequest] = field(default_factory=dict)
    leader: str = ""
    protocol: str = ""
    assignments: dict[str, bytes] = field(default_factory=dict)
    offsets: dict[tuple[str, int], tuple[int, int, str]] = field(default_factory=dict)
    joined: set[str] = field(default_factory=set)
    join_waiters: dict[str, asyncio.Future] = field(default_factory=dict)
    sync_waiters: dict[str, asyncio.Future] = field(default_factory=dict)
    heartbeats: dict[str, int] = field(default_factory=dict)
    sessions: dict[str, asyncio.TimerHandle] = field(default_factory=dict)
    rebalances: int = 0
    next_error: dict[str, deque[int]] = field(default_factory=dict)
    """Errors to answer next, by method."""


class FakeCluster:
    """Brokers 1 to `brokers`, at `broker<id>:9092`."""

    def __init__(self, brokers: int = 1, *, latency_ms: float = 0.0, join_wait_ms: float = 50.0) -> None:
        self.latency_ms = latency_ms
        self.join_wait_ms = join_wait_ms
        self.nodes = {node: f"broker{node}:9092" for node in range(1, brokers + 1)}
        self.topics: dict[str, list[FakePartition]] = {}
        self.topic_configs: dict[str, dict[str, str]] = {}
        self.groups: dict[str, FakeGroup] = {}
        self.down: set[int] = set()
        """Nodes that refuse connections."""
        self.frozen: set[int] = set()
        """Nodes that answer nothing, as under SIGSTOP."""
        self.cut_off: set[int] = set()
        """Nodes that only clients reach: of unary calls they answer Metadata alone, which needs nobody else."""
        self.streams: list[FakeStream] = []
        self.calls: list[tuple[int, str]] = []
        self.on_produce: Callable[[str, FakePartition, bytes], int | None] | None = None
        """(`before` or `after`, partition, batch) -> error code to answer; -1000 to lose the connection; None: go on."""
        self.on_unary: Callable[[int, str, bytes], KraftlogError | None] | None = None
        self.initial_ids = itertools.count(100)
        self.max_message_bytes = 1 << 20
        self.compression_type = "producer"
        self.durability = "quorum-fsync"
        self.metadata_offset = 0
        self.coordinator = 1
        self.producer_requests = 0
        self.max_batch_bytes_seen = 0
        self.changed = asyncio.Event()

    def create(self, topic: str, partitions: int = 1) -> list[FakePartition]:
        nodes = sorted(self.nodes)
        self.topics[topic] = [FakePartition(topic, p, leader=nodes[p % len(nodes)]) for p in range(partitions)]
        self.metadata_offset += 1
        return self.topics[topic]

    def partition(self, topic: str, partition: int = 0) -> FakePartition:
        return self.topics[topic][partition]

    def move(self, topic: str, partition: int, node: int) -> None:
        self.partition(topic, partition).leader = node
        self.partition(topic, partition).leader_epoch += 1
        self.metadata_offset += 1
        self.notify()

    def notify(self) -> None:
        """Wake the fetch streams."""
        self.changed.set()
        self.changed = asyncio.Event()

    def stop(self, node: int) -> None:
        """The node dies: its streams break, connections are refused."""
        self.down.add(node)
        self.drop_streams(node)

    def drop_streams(self, node: int) -> None:
        for stream in list(self.streams):
            if stream.node == node:
                stream.lose(NetworkError(f"the connection to broker {node} was lost"))

    def connector(self) -> "FakeConnector":
        return FakeConnector(self)

    # -- unary calls

    async def unary(self, node: int, method: str, data: bytes) -> bytes:
        name = method.rsplit("/", 1)[1]
        self.calls.append((node, name))
        if self.on_unary is not None:
            error = self.on_unary(node, name, data)
            if error is not None:
                raise error
        return await getattr(self, "do_" + name)(node, data)

    async def do_Metadata(self, node: int, data: bytes) -> bytes:
        request = broker_pb2.MetadataRequest.FromString(data)
        names = sorted(self.topics) if request.all_topics else list(request.topics)
        response = broker_pb2.MetadataResponse(cluster_id="fake", controller_id=1, metadata_offset=self.metadata_offset)
        for node_id, address in self.nodes.items():
            host, port = address.split(":")
            response.brokers.add(node_id=node_id, host=host, port=int(port))
        for name in names:
            info = response.topics.add(name=name, topic_id=name.encode().ljust(16)[:16])
            if name not in self.topics:
                info.error_code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
                continue
            info.compression_type = self.compression_type
            info.max_message_bytes = self.max_message_bytes
            for p in self.topics[name]:
                info.partitions.add(
                    partition=p.partition, leader_id=p.leader, leader_epoch=p.leader_epoch, replicas=[p.leader]
                )
        return response.SerializeToString()

    async def do_InitProducerId(self, node: int, data: bytes) -> bytes:
        return broker_pb2.InitProducerIdResponse(
            producer_id=next(self.initial_ids), producer_epoch=0
        ).SerializeToString()

    async def do_ListOffsets(self, node: int, data: bytes) -> bytes:
        request = broker_pb2.ListOffsetsRequest.FromString(data)
        response = broker_pb2.ListOffsetsResponse()
        for asked in request.partitions:
            result = response.partitions.add(topic=asked.topic, partition=asked.partition, leader_epoch=-1)
            try:
                p = self._led(node, asked.topic, asked.partition)
            except KraftlogError as error:
                result.error_code = code_of(error)
                continue
            result.leader_epoch = p.leader_epoch
            if asked.timestamp == -1:
                stable = p.stable_end if request.isolation_level else None
                result.offset, result.timestamp = (p.end_offset if stable is None else stable), -1
            elif asked.timestamp == -2:
                result.offset, result.timestamp = p.start_offset, -1
            else:
                found = next((r for r in p.records() if r.timestamp >= asked.timestamp), None)
                result.offset, result.timestamp = (-1, -1) if found is None else (found.offset, found.timestamp)
        return response.SerializeToString()

    def _led(self, node: int, topic: str, partition: int) -> FakePartition:
        partitions = self.topics.get(topic)
        if partitions is None or not 0 <= partition < len(partitions):
            raise UnknownTopicOrPartitionError(f"{topic}-{partition}")
        if partitions[partition].leader != node:
            from kraftlog.proto.errors import NotLeaderOrFollowerError

            raise NotLeaderOrFollowerError(f"broker {node} does not lead {topic}-{partition}")
        return partitions[partition]

    # -- produce

    async def serve_ProduceStream(self, stream: "FakeStream") -> None:
        while (data := await stream.from_client()) is not None:
            request = decode_produce_request(data)
            self.producer_requests += 1
            results = []
            for part in request.partitions:
                assert isinstance(part.records, memoryview)
                records = bytes(part.records)
                self.max_batch_bytes_seen = max(self.max_batch_bytes_seen, len(records))
                code, base, start = 0, -1, 0
                try:
                    p = self._led(stream.node, part.topic, part.partition)
                    code = self._hook("before", p, records, stream)
                    if not code:
                        base, _ = p.append(records)
                        start = p.start_offset
                        code = self._hook("after", p, records, stream)
                except KraftlogError as error:
                    code = int(code_of(error))
                results.append(
                    ProduceResult(
                        part.topic, part.partition, code, "", -1 if code else base, -1, start, self.durability
                    )
                )
            self.notify()
            if request.acks != 0:
                response = ProduceResponse(request.correlation_id, results, 0, len(data))
                await stream.to_client(b"".join(encode(response)))

    def _hook(self, when: str, p: FakePartition, records: bytes, stream: "FakeStream") -> int:
        code = self.on_produce(when, p, records) if self.on_produce is not None else None
        if code == LOSE_CONNECTION:
            stream.lose(NetworkError("the connection was lost"))
            raise asyncio.CancelledError
        return code or 0

    # -- fetch

    async def serve_FetchStream(self, stream: "FakeStream") -> None:
        session = _FetchSession(self, stream)
        await session.run()

    # -- groups

    def group(self, group_id: str) -> FakeGroup:
        return self.groups.setdefault(group_id, FakeGroup(group_id))

    async def do_FindCoordinator(self, node: int, data: bytes) -> bytes:
        host, port = self.nodes[self.coordinator].split(":")
        return group_pb2.FindCoordinatorResponse(
            node_id=self.coordinator, host=host, port=int(port)
        ).SerializeToString()

    def _planned(self, group: FakeGroup, method: str, member_id: str = "") -> int:
        """The error that a test wants to see next; a member that is not known is really gone."""
        queue = group.next_error.get(method)
        code = queue.popleft() if queue else 0
        if code == UnknownMemberIdError.code and member_id in group.members:
            self._remove(group, member_id)
            self._rebalance(group)
        return code

    async def do_JoinGroup(self, node: int, data: bytes) -> bytes:
        request = group_pb2.JoinGroupRequest.FromString(data)
        group = self.group(request.group_id)
        code = self._planned(group, "JoinGroup")
        if code:
            return group_pb2.JoinGroupResponse(error_code=code, generation_id=-1).SerializeToString()
        member_id = request.member_id
        if not member_id:
            member_id = f"{request.client_id}-{len(group.heartbeats) + len(group.joined)}-{next(self.initial_ids)}"
            group.heartbeats[member_id] = 0
            return group_pb2.JoinGroupResponse(
                error_code=ErrorCode.MEMBER_ID_REQUIRED, generation_id=-1, member_id=member_id
            ).SerializeToString()
        if member_id not in group.heartbeats:
            return group_pb2.JoinGroupResponse(
                error_code=ErrorCode.UNKNOWN_MEMBER_ID, generation_id=-1
            ).SerializeToString()
        group.members[member_id] = request
        group.joined.add(member_id)
        self._touch(group, member_id)
        loop = asyncio.get_running_loop()
        if group.state != "PreparingRebalance":
            group.state = "PreparingRebalance"
            group.rebalances += 1
            loop.call_later(self.join_wait_ms / 1000, self._try_complete_join, group, request.rebalance_timeout_ms)
        waiter = group.join_waiters[member_id] = loop.create_future()
        return await waiter

    def _try_complete_join(self, group: FakeGroup, timeout_ms: float, waited_ms: float = 0.0) -> None:
        if group.state != "PreparingRebalance":
            return
        missing = set(group.members) - group.joined
        if missing and waited_ms < timeout_ms:
            asyncio.get_running_loop().call_later(
                self.join_wait_ms / 1000, self._try_complete_join, group, timeout_ms, waited_ms + self.join_wait_ms
            )
            return
        for member_id in missing:
            self._remove(group, member_id)
        if not group.members:
            group.state = "Empty"
            return
        group.generation += 1
        group.state = "CompletingRebalance"
        group.joined.clear()
        group.assignments = {}
        group.leader = group.leader if group.leader in group.members else sorted(group.members)[0]
        common = set.intersection(*({p.name for p in m.protocols} for m in group.members.values()))
        group.protocol = next(p.name for p in group.members[group.leader].protocols if p.name in common)
        waiters, group.join_waiters = group.join_waiters, {}
        for member_id, waiter in waiters.items():
            response = group_pb2.JoinGroupResponse(
                generation_id=group.generation,
                protocol_type="consumer",
                protocol_name=group.protocol,
                leader=group.leader,
                member_id=member_id,
            )
            if member_id == group.leader:
                for other_id, other in sorted(group.members.items()):
                    metadata = next(p.metadata for p in other.protocols if p.name == group.protocol)
                    response.members.add(member_id=other_id, metadata=metadata)
            if not waiter.done():
                waiter.set_result(response.SerializeToString())

    async def do_SyncGroup(self, node: int, data: bytes) -> bytes:
        request = group_pb2.SyncGroupRequest.FromString(data)
        group = self.group(request.group_id)
        code = self._planned(group, "SyncGroup", request.member_id) or self._check(
            group, request.member_id, request.generation_id
        )
        if not code and group.state == "PreparingRebalance":
            code = ErrorCode.REBALANCE_IN_PROGRESS
        if code:
            return group_pb2.SyncGroupResponse(error_code=code).SerializeToString()
        self._touch(group, request.member_id)
        if request.member_id == group.leader:
            group.assignments = {a.member_id: a.assignment for a in request.assignments}
            group.state = "Stable"
            waiters, group.sync_waiters = group.sync_waiters, {}
            for waiter in waiters.values():
                if not waiter.done():
                    waiter.set_result(None)
        elif group.state != "Stable":
            waiter = group.sync_waiters[request.member_id] = asyncio.get_running_loop().create_future()
            await waiter
        return group_pb2.SyncGroupResponse(
            protocol_type="consumer",
            protocol_name=group.protocol,
            assignment=group.assignments.get(request.member_id, b""),
        ).SerializeToString()

    async def do_Heartbeat(self, node: int, data: bytes) -> bytes:
        request = group_pb2.HeartbeatRequest.FromString(data)
        group = self.group(request.group_id)
        code = self._planned(group, "Heartbeat", request.member_id) or self._check(
            group, request.member_id, request.generation_id
        )
        if request.member_id in group.heartbeats:
            group.heartbeats[request.member_id] += 1
            self._touch(group, request.member_id)
        if not code and group.state == "PreparingRebalance":
            code = ErrorCode.REBALANCE_IN_PROGRESS
        return group_pb2.HeartbeatResponse(error_code=code).SerializeToString()

    async def do_LeaveGroup(self, node: int, data: bytes) -> bytes:
        request = group_pb2.LeaveGroupRequest.FromString(data)
        group = self.group(request.group_id)
        if request.member_id in group.members:
            self._remove(group, request.member_id)
            self._rebalance(group)
        return group_pb2.LeaveGroupResponse().SerializeToString()

    async def do_OffsetCommit(self, node: int, data: bytes) -> bytes:
        request = group_pb2.OffsetCommitRequest.FromString(data)
        group = self.group(request.group_id)
        code = self._planned(group, "OffsetCommit", request.member_id)
        if not code and (request.member_id or request.generation_id >= 0):
            code = self._check(group, request.member_id, request.generation_id)
            if not code and group.state == "CompletingRebalance":
                code = ErrorCode.REBALANCE_IN_PROGRESS
        response = group_pb2.OffsetCommitResponse()
        for p in request.partitions:
            response.partitions.add(topic=p.topic, partition=p.partition, error_code=code)
            if not code:
                group.offsets[p.topic, p.partition] = (p.offset, p.leader_epoch, p.metadata)
        return response.SerializeToString()

    async def do_OffsetFetch(self, node: int, data: bytes) -> bytes:
        request = group_pb2.OffsetFetchRequest.FromString(data)
        group = self.group(request.group_id)
        code = self._planned(group, "OffsetFetch")
        response = group_pb2.OffsetFetchResponse(error_code=code)
        wanted = (
            sorted(group.offsets) if request.all_partitions else [(p.topic, p.partition) for p in request.partitions]
        )
        for topic, partition in [] if code else wanted:
            offset, epoch, metadata = group.offsets.get((topic, partition), (-1, -1, ""))
            response.partitions.add(
                topic=topic, partition=partition, offset=offset, leader_epoch=epoch, metadata=metadata
            )
        return response.SerializeToString()

    async def do_ListGroups(self, node: int, data: bytes) -> bytes:
        response = group_pb2.ListGroupsResponse()
        for group in self.groups.values() if node == self.coordinator else ():
            response.groups.add(group_id=group.group_id, protocol_type="consumer", state=group.state)
        return response.SerializeToString()

    async def do_DescribeGroups(self, node: int, data: bytes) -> bytes:
        request = group_pb2.DescribeGroupsRequest.FromString(data)
        response = group_pb2.DescribeGroupsResponse()
        for group_id in request.group_ids:
            group = self.groups.get(group_id)
            if group is None:
                response.groups.add(group_id=group_id, state="Dead")
                continue
            described = response.groups.add(
                group_id=group_id,
                state=group.state,
                protocol_type="consumer",
                protocol_name=group.protocol,
                generation_id=group.generation,
                leader=group.leader,
                coordinator_id=node,
            )
            for member_id, member in group.members.items():
                described.members.add(
                    member_id=member_id,
                    client_id=member.client_id,
                    metadata=member.protocols[0].metadata,
                    assignment=group.assignments.get(member_id, b""),
                )
        return response.SerializeToString()

    def _check(self, group: FakeGroup, member_id: str, generation: int) -> int:
        if member_id not in group.members:
            return int(UnknownMemberIdError.code)
        if generation != group.generation:
            return int(IllegalGenerationError.code)
        return 0

    def _touch(self, group: FakeGroup, member_id: str) -> None:
        timer = group.sessions.pop(member_id, None)
        if timer is not None:
            timer.cancel()
        member = group.members.get(member_id)
        if member is not None:
            group.sessions[member_id] = asyncio.get_running_loop().call_later(
                member.session_timeout_ms / 1000, self._session_expired, group, member_id
            )

    def _session_expired(self, group: FakeGroup, member_id: str) -> None:
        self._remove(group, member_id)
        self._rebalance(group)

    def _remove(self, group: FakeGroup, member_id: str) -> None:
        group.members.pop(member_id, None)
        group.heartbeats.pop(member_id, None)
        group.joined.discard(member_id)
        timer = group.sessions.pop(member_id, None)
        if timer is not None:
            timer.cancel()

    def _rebalance(self, group: FakeGroup) -> None:
        if not group.members:
            group.state = "Empty"
            return
        waiters, group.sync_waiters = group.sync_waiters, {}
        for waiter in waiters.values():
            if not waiter.done():
                waiter.set_result(None)
        if group.state != "PreparingRebalance":
            group.state = "PreparingRebalance"
            group.rebalances += 1
            timeout_ms = max(m.rebalance_timeout_ms for m in group.members.values())
            asyncio.get_running_loop().call_later(self.join_wait_ms / 1000, self._try_complete_join, group, timeout_ms)

    # -- admin

    async def do_CreateTopics(self, node: int, data: bytes) -> bytes:
        request = admin_pb2.CreateTopicsRequest.FromString(data)
        response = admin_pb2.CreateTopicsResponse()
        for wanted in request.topics:
            result = response.topics.add(name=wanted.name, topic_id=b"\x01" * 16)
            if wanted.name in self.topics:
                result.error_code = ErrorCode.TOPIC_ALREADY_EXISTS
                result.error_message = f"topic {wanted.name!r} exists already"
                continue
            count = wanted.num_partitions if wanted.num_partitions > 0 else 1
            if not request.validate_only:
                self.create(wanted.name, count)
                self.topic_configs[wanted.name] = dict(wanted.configs)
            result.num_partitions, result.replication_factor = count, 1
        return response.SerializeToString()

    async def do_DeleteTopics(self, node: int, data: bytes) -> bytes:
        request = admin_pb2.DeleteTopicsRequest.FromString(data)
        response = admin_pb2.DeleteTopicsResponse()
        for name in request.names:
            result = response.topics.add(name=name)
            if self.topics.pop(name, None) is None:
                result.error_code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
                result.error_message = f"topic {name!r} does not exist"
        return response.SerializeToString()

    async def do_DescribeTopics(self, node: int, data: bytes) -> bytes:
        request = admin_pb2.DescribeTopicsRequest.FromString(data)
        response = admin_pb2.DescribeTopicsResponse()
        for name in request.names or sorted(self.topics):
            described = response.topics.add(name=name, topic_id=b"\x01" * 16)
            if name not in self.topics:
                described.error_code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
                continue
            described.configs.update(self.topic_configs.get(name, {}))
            for p in self.topics[name]:
                described.partitions.add(
                    partition=p.partition, leader_id=p.leader, replicas=[p.leader], in_sync_replicas=[p.leader]
                )
        return response.SerializeToString()

    async def do_DescribeCluster(self, node: int, data: bytes) -> bytes:
        response = admin_pb2.DescribeClusterResponse(cluster_id="fake", controller_id=1, version="0")
        for node_id, address in self.nodes.items():
            host, port = address.split(":")
            response.nodes.add(node_id=node_id, host=host, port=int(port), roles=["broker", "controller"])
        return response.SerializeToString()

    async def do_DescribeConfigs(self, node: int, data: bytes) -> bytes:
        request = admin_pb2.DescribeConfigsRequest.FromString(data)
        response = admin_pb2.DescribeConfigsResponse()
        for resource in request.resources:
            described = response.resources.add(resource=resource)
            described.entries.add(name="retention.ms", value="604800000", source="default")
        return response.SerializeToString()


class _FetchSession:
    """One fetch stream: positions by partition, credit, and chunks as data come."""

    def __init__(self, cluster: FakeCluster, stream: "FakeStream") -> None:
        self.cluster = cluster
        self.stream = stream
        self.positions: dict[tuple[str, int], FetchPosition] = {}
        self.credit = 0
        self.read_committed = False

    async def run(self) -> None:
        receiver = asyncio.ensure_future(self.stream.from_client())
        try:
            while True:
                changed = asyncio.ensure_future(self.cluster.changed.wait())
                try:
                    if not await self.send_available():
                        await asyncio.wait({receiver, changed}, return_when=asyncio.FIRST_COMPLETED)
                finally:
                    changed.cancel()
                while receiver.done():
                    data = receiver.result()
                    if data is None:
                        return
                    self.control(data)
                    receiver = asyncio.ensure_future(self.stream.from_client())
                    await asyncio.sleep(0)
        finally:
            receiver.cancel()

    def control(self, data: bytes) -> None:
        message = decode_fetch_control(data)
        if message.params is not None:
            self.read_committed = message.params.isolation_level == 1
        for tp in message.forget:
            self.positions.pop((tp.topic, tp.partition), None)
        for position in message.set:
            self.positions[position.topic, position.partition] = position
        self.credit += message.credit_bytes

    async def send_available(self) -> bool:
        sent = False
        for key, position in list(self.positions.items()):
            chunk = self.chunk(position)
            if chunk is None:
                continue
            if chunk.error_code:
                self.positions.pop(key, None)
            else:
                self.credit -= len(chunk.records)
                position.fetch_offset = chunk.next_offset
                self.positions[key] = self.positions.pop(key)
            await self.stream.to_client(b"".join(encode(FetchChunk([chunk]))))
            sent = True
        return sent

    def chunk(self, position: FetchPosition) -> PartitionChunk | None:
        chunk = PartitionChunk(position.topic, position.partition, position.generation, diverging_epoch=-1)
        try:
            p = self.cluster._led(self.stream.node, position.topic, position.partition)
            if p.error_code:
                raise_code = p.error_code
                chunk.error_code = raise_code
                return chunk
            if not p.start_offset <= position.fetch_offset <= p.end_offset:
                raise OffsetOutOfRangeError(f"offset {position.fetch_offset} of {p.start_offset}..{p.end_offset}")
        except KraftlogError as error:
            chunk.error_code = int(code_of(error))
            chunk.error_message = str(error)
            if isinstance(error, OffsetOutOfRangeError):
                chunk.log_start_offset, chunk.high_watermark = p.start_offset, p.end_offset
            return chunk
        end = p.stable_end if self.read_committed and p.stable_end is not None else p.end_offset
        if position.end_offset:
            end = min(end, position.end_offset)
        if position.fetch_offset >= end or self.credit <= 0:
            return None
        chunk.records, chunk.next_offset = p.read(position.fetch_offset, position.max_bytes or 1 << 20, end)
        chunk.high_watermark, chunk.last_stable_offset = p.end_offset, end
        chunk.log_start_offset = p.start_offset
        if self.read_committed:
            chunk.aborted_transactions = [
                AbortedTransaction(producer_id, first)
                for producer_id, first, last in p.aborted
                if first < chunk.next_offset and last >= position.fetch_offset
            ]
        return chunk


class FakeConnector:
    def __init__(self, cluster: FakeCluster) -> None:
        self.cluster = cluster

    def connect(self, address: str) -> "FakeChannel":
        return FakeChannel(self.cluster, address)


class FakeChannel:
    def __init__(self, cluster: FakeCluster, address: str) -> None:
        self.cluster = cluster
        self.address = address
        self.is_closed = False
        self.streams: list[FakeStream] = []

    def node(self) -> int:
        if self.is_closed:
            raise NetworkError(f"the channel to {self.address} is closed")
        for node, address in self.cluster.nodes.items():
            if address == self.address and node not in self.cluster.down:
                return node
        raise BrokerNotAvailableError(f"cannot reach the broker at {self.address} (refused)")

    async def unary(self, method: str, request: Payload, *, timeout_ms: float) -> bytes:
        data = request if isinstance(request, bytes) else b"".join(request)
        await asyncio.sleep(self.cluster.latency_ms / 1000)
        node = self.node()
        loop = asyncio.get_running_loop()
        deadline = loop.time() + timeout_ms / 1000
        needs_others = not method.endswith("/Metadata")
        while node in self.cluster.frozen or (needs_others and node in self.cluster.cut_off):
            await asyncio.sleep(min(0.5, max(0.0, deadline - loop.time())))
            if loop.time() >= deadline:
                raise RequestTimedOutError(f"the broker at {self.address} did not answer {method}")
        try:
            async with asyncio.timeout(timeout_ms / 1000):
                return await self.cluster.unary(node, method, data)
        except TimeoutError:
            raise RequestTimedOutError(f"the broker at {self.address} did not answer {method}") from None

    def stream(self, method: str) -> "FakeStream":
        stream = FakeStream(self, method)
        self.streams.append(stream)
        return stream

    async def close(self) -> None:
        self.is_closed = True
        for stream in self.streams:
            stream.cancel()


class FakeStream:
    """A stream with both ends: the client's methods are the seam's, the broker uses `from_client` and `to_client`."""

    def __init__(self, channel: FakeChannel, method: str) -> None:
        self.channel = channel
        self.cluster = channel.cluster
        self.name = method.rsplit("/", 1)[1]
        self.node = -1
        self.error: KraftlogError | None = None
        self.requests: asyncio.Queue[bytes | None] = asyncio.Queue()
        self.answers: asyncio.Queue[bytes | None] = asyncio.Queue()
        self.server: asyncio.Task | None = None

    def _open(self) -> None:
        if self.error is not None:
            raise self.error
        if self.server is None:
            try:
                self.node = self.channel.node()
            except KraftlogError as error:
                self.lose(error)
                raise
            self.cluster.streams.append(self)
            handler = getattr(self.cluster, "serve_" + self.name)
            self.server = asyncio.get_running_loop().create_task(self._serve(handler))

    async def _serve(self, handler) -> None:
        try:
            await handler(self)
            self.answers.put_nowait(None)
        except KraftlogError as error:
            self.lose(error)

    async def send(self, message: Payload) -> None:
        self._open()
        self.requests.put_nowait(message if isinstance(message, bytes) else b"".join(message))
        await asyncio.sleep(0)

    async def receive(self) -> bytes | None:
        self._open()
        answer = await self.answers.get()
        await asyncio.sleep(self.cluster.latency_ms / 1000)
        if answer is None and self.error is not None:
            self.answers.put_nowait(None)
            raise self.error
        return answer

    async def finish(self) -> None:
        self.requests.put_nowait(None)

    def cancel(self) -> None:
        self.lose(NetworkError("the stream was dropped"))

    def lose(self, error: KraftlogError) -> None:
        if self.error is None:
            self.error = error
            self.answers.put_nowait(None)
            if self in self.cluster.streams:
                self.cluster.streams.remove(self)
            if self.server is not None:
                self.server.cancel()

    async def from_client(self) -> bytes | None:
        await asyncio.sleep(self.cluster.latency_ms / 1000)
        await self._thawed()
        return await self.requests.get()

    async def to_client(self, data: bytes) -> None:
        await self._thawed()
        self.answers.put_nowait(data)

    async def _thawed(self) -> None:
        while self.node in self.cluster.frozen:  # noqa: ASYNC110  # tests thaw a node by changing a set
            await asyncio.sleep(0.5)


__all__ = ["FakeCluster", "FakeConnector", "FakeGroup", "FakePartition", "RebalanceInProgressError"]
