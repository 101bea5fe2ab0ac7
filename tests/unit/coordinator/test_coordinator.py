"""The coordinator's requests from end to end, on virtual time and a log whose commits the test controls."""

import asyncio

import pytest

from kraftlog.kraft.image import MetadataDelta, MetadataImage
from kraftlog.proto import group_pb2
from kraftlog.proto.errors import ErrorCode, InvalidConfigError, NotEnoughReplicasError, StorageError
from kraftlog.proto.metadata_pb2 import MetadataRecord, RemoveTopicRecord, TopicRecord
from kraftlog.server.coordinator import GroupConfig
from kraftlog.server.coordinator.validation import client_host
from tests.unit.coordinator.harness import CONTEXT, FakeLog, Node, run

MINUTE_MS = 60_000


def test_two_members_share_a_generation_and_their_assignments() -> None:
    async def main() -> None:
        node = await Node().start()
        leader, follower = await node.stable_group(2)
        assert {member.member_id for member in leader.members} == {leader.member_id, follower.member_id}
        assert not follower.members
        assert (await node.sync(follower)).assignment == follower.member_id.encode()
        described = await node.describe()
        assert (described.state, described.leader, described.generation_id) == ("Stable", leader.member_id, 1)
        assert {m.member_id: m.assignment for m in described.members} == {
            joined.member_id: joined.member_id.encode() for joined in (leader, follower)
        }
        assert described.members[0].client_host == "/127.0.0.1"
        await node.coordinator.stop()

    run(main())


def test_member_ids_are_the_client_id_and_a_uuid_from_the_seam() -> None:
    """Kafka's form, so that an operator recognises the client; the same seed gives the same ids."""

    async def main() -> list[str]:
        node = await Node(seed=7).start()
        return [await node.new_member_id(client_id="billing"), await node.new_member_id(client_id="")]

    ids = run(main())
    assert ids == run(main())
    assert ids[0].startswith("billing-")
    assert len(ids[0]) == len("billing-") + 36


def test_the_assignment_is_in_the_log_before_anybody_has_it() -> None:
    """Rule: the assignment is persisted (committed) before SyncGroup answers."""

    async def main() -> None:
        node = await Node().start()
        member_id = await node.new_member_id()
        joined = await node.join(member_id)
        node.log.hold()
        sync = asyncio.create_task(node.sync(joined, {member_id: b"p0"}))
        await asyncio.sleep(5)
        assert not sync.done()
        assert node.log.generations() == [(1, {member_id: b"p0"})]
        assert await node.commit({0: 1}, member_id, 1) == [ErrorCode.REBALANCE_IN_PROGRESS]
        node.log.release()
        assert (await sync).assignment == b"p0"
        await node.coordinator.stop()

    run(main())


def test_a_commit_is_answered_when_it_is_durable_and_read_only_then() -> None:
    async def main() -> None:
        node = await Node().start()
        assert await node.commit({0: 10}) == [0]
        node.log.hold()
        commit = asyncio.create_task(node.commit({0: 20, 1: 5}))
        await asyncio.sleep(1)
        assert not commit.done()
        assert await node.fetch(0, 1) == {0: 10, 1: -1}
        assert await node.fetch() == {0: 10}
        node.log.release()
        assert await commit == [0, 0]
        assert await node.fetch(0, 1) == {0: 20, 1: 5}
        assert await node.fetch() == {0: 20, 1: 5}
        await node.coordinator.stop()

    run(main())


def test_a_cancelled_caller_does_not_disturb_the_others() -> None:
    """Its connection broke: the commit goes on, and a parked member keeps its place."""

    async def main() -> None:
        node = await Node().start()
        node.log.hold()
        commit = asyncio.create_task(node.commit({0: 20}))
        await asyncio.sleep(0.1)
        commit.cancel()
        node.log.release()
        await asyncio.sleep(0.1)
        assert await node.fetch(0) == {0: 20}
        ids = [await node.new_member_id() for _ in range(2)]
        gone, stays = (asyncio.create_task(node.join(member_id)) for member_id in ids)
        await asyncio.sleep(0)
        gone.cancel()
        assert (await stays).error_code == 0
        assert node.parked == 0
        await node.coordinator.stop()

    run(main())


def test_fail_over_keeps_members_generation_and_offsets() -> None:
    async def main() -> None:
        node = await Node().start()
        leader, follower = await node.stable_group(2)
        await node.commit({0: 10}, leader.member_id, 1)
        await node.fail_over()
        assert await node.heartbeat(follower.member_id, 1) == 0
        assert (await node.sync(follower)).assignment == follower.member_id.encode()
        assert await node.commit({0: 11}, leader.member_id, 1) == [0]
        assert await node.fetch(0) == {0: 11}
        await node.coordinator.stop()

    run(main())


def test_an_unfinished_rebalance_ends_with_the_leadership() -> None:
    """Whoever waits hears NOT_COORDINATOR; the next coordinator knows the last persisted generation."""

    async def main() -> None:
        node = await Node().start()
        (leader,) = await node.stable_group(1)
        newcomer = asyncio.create_task(node.join(await node.new_member_id()))
        await asyncio.sleep(0)
        node.coordinator.on_resigned(0)
        assert (await newcomer).error_code == ErrorCode.NOT_COORDINATOR
        assert await node.heartbeat(leader.member_id, 1) == ErrorCode.NOT_COORDINATOR
        node.elect()
        assert await node.heartbeat(leader.member_id, 1) == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        await node.coordinator.wait_loaded()
        assert await node.heartbeat(leader.member_id, 1) == 0
        await node.coordinator.stop()

    run(main())


def test_a_sync_whose_batch_is_lost_is_not_answered_as_done() -> None:
    """The batch never committed; after the fail-over the generation is decided anew."""

    async def main() -> None:
        node = await Node().start()
        member_id = await node.new_member_id()
        joined = await node.join(member_id)
        node.log.hold()
        sync = asyncio.create_task(node.sync(joined, {member_id: b"p0"}))
        commit = asyncio.create_task(node.commit({0: 3}, group_id="other"))
        await asyncio.sleep(0)
        node.coordinator.on_resigned(0)
        assert (await sync).error_code == ErrorCode.NOT_COORDINATOR
        assert await commit == [ErrorCode.NOT_COORDINATOR]
        node.log.fail_waiters()
        node.log.truncate_uncommitted()
        node.log.release()
        await node.fail_over()
        assert await node.fetch(0, group_id="other") == {0: -1}
        assert (await node.join(member_id)).error_code == ErrorCode.UNKNOWN_MEMBER_ID
        await node.coordinator.stop()

    run(main())


def test_a_log_that_fails_under_us_is_loaded_again() -> None:
    """This node still leads: after a pause it rebuilds the state from the log."""

    async def main() -> None:
        node = await Node(load_retry_backoff_ms=500).start()
        await node.commit({0: 1})
        node.log.hold()
        commit = asyncio.create_task(node.commit({0: 2}))
        await asyncio.sleep(0.1)
        node.log.fail_waiters(StorageError("disk"))
        assert await commit == [ErrorCode.NOT_COORDINATOR]
        response = await node.coordinator.offset_fetch(group_pb2.OffsetFetchRequest(group_id="g"), CONTEXT)
        assert response.error_code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        node.log.truncate_uncommitted()
        node.log.release()
        await asyncio.sleep(0.6)
        assert await node.fetch(0) == {0: 1}
        await node.coordinator.stop()

    run(main())


def test_a_log_that_cannot_be_read_says_so_and_is_tried_again_ever_more_slowly(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """A damaged record is not passed over: the offset that it holds would be lost silently."""

    async def main() -> None:
        log = FakeLog()
        first = await Node(log=log).start()
        await first.commit({0: 1})
        good = log.batches[0][0]
        log.batches[0][0] = good[:-1] + bytes([good[-1] ^ 1])
        node = Node(log=log)
        await node.coordinator.start()
        node.elect()
        await asyncio.sleep(120)
        response = await node.coordinator.offset_fetch(group_pb2.OffsetFetchRequest(group_id="g"), CONTEXT)
        assert response.error_code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        assert "CRC" in response.error_message
        assert 5 <= len(caplog.records) <= 12
        log.batches[0][0] = good
        await asyncio.sleep(31)
        assert await node.fetch(0) == {0: 1}
        await node.coordinator.stop()
        await first.coordinator.stop()

    run(main())


def test_a_refused_append_is_told_in_the_members_terms() -> None:
    """NOT_ENOUGH_REPLICAS of our own topic would read like one of theirs."""

    async def main() -> None:
        node = await Node().start()
        member_id = await node.new_member_id()
        joined = await node.join(member_id)
        node.log.append_error = NotEnoughReplicasError("1 of 2")
        assert await node.commit({0: 1}, group_id="simple") == [ErrorCode.COORDINATOR_NOT_AVAILABLE]
        synced = await node.sync(joined, {member_id: b"p0"})
        assert synced.error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
        assert "1 of 2" in synced.error_message
        node.log.append_error = None
        rejoined = await node.join(member_id)
        assert (rejoined.error_code, rejoined.generation_id) == (0, 2)
        await node.coordinator.stop()

    run(main())


def test_an_assignment_that_no_batch_can_hold_is_refused() -> None:
    """And a commit of too many partitions: INVALID_COMMIT_OFFSET_SIZE, as in Kafka."""

    async def main() -> None:
        node = await Node(log=FakeLog(max_batch_bytes=1_000)).start()
        member_id = await node.new_member_id()
        joined = await node.join(member_id)
        synced = await node.sync(joined, {member_id: bytes(2_000)})
        assert synced.error_code == ErrorCode.UNKNOWN_SERVER_ERROR
        assert "max.message.bytes=1000" in synced.error_message
        codes = await node.commit(dict.fromkeys(range(100), 1), group_id="simple")
        assert set(codes) == {ErrorCode.INVALID_COMMIT_OFFSET_SIZE}
        await node.coordinator.stop()

    run(main())


def test_an_older_election_changes_nothing() -> None:
    """Metadata of one epoch may be told twice, or late."""

    async def main() -> None:
        node = await Node().start()
        (leader,) = await node.stable_group(1)
        node.coordinator.on_elected(0, node.epoch)
        node.coordinator.on_elected(0, node.epoch - 1)
        node.coordinator.on_resigned(0, node.epoch - 1)
        assert await node.heartbeat(leader.member_id, 1) == 0
        node.coordinator.on_resigned(0, node.epoch + 1)
        assert node.coordinator.active_partitions == []
        await node.coordinator.stop()

    run(main())


def test_stop_answers_everybody_and_may_be_repeated() -> None:
    async def main() -> None:
        node = await Node().start()
        await node.stable_group(1)
        waiting = asyncio.create_task(node.join(await node.new_member_id()))
        await asyncio.sleep(0)
        await node.coordinator.stop()
        await node.coordinator.stop()
        assert (await waiting).error_code == ErrorCode.NOT_COORDINATOR
        assert (await node.join()).error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE

    run(main())


def test_the_last_leave_is_answered_when_the_empty_group_is_committed() -> None:
    async def main() -> None:
        node = await Node().start()
        (leader,) = await node.stable_group(1)
        node.log.hold()
        leave = asyncio.create_task(node.leave(leader.member_id))
        await asyncio.sleep(1)
        assert not leave.done()
        node.log.release()
        assert await leave == 0
        assert (await node.describe()).state == "Empty"
        assert await node.leave(leader.member_id) == ErrorCode.UNKNOWN_MEMBER_ID
        await node.coordinator.stop()

    run(main())


def test_groups_are_listed_by_state() -> None:
    async def main() -> None:
        node = await Node().start()
        await node.stable_group(1)
        await node.commit({0: 1}, group_id="offsets-only")
        await node.new_member_id(group_id="promised")

        async def listed(*states: str) -> dict[str, str]:
            response = await node.coordinator.list_groups(group_pb2.ListGroupsRequest(states=states), CONTEXT)
            return {group.group_id: group.state for group in response.groups}

        assert await listed() == {"g": "Stable", "offsets-only": "Empty", "promised": "Empty"}
        assert await listed("stable") == {"g": "Stable"}
        assert await listed("Nonsense") == {}
        assert (await node.describe("nobody")).error_code == ErrorCode.GROUP_ID_NOT_FOUND
        assert (await node.describe("nobody")).state == "Dead"
        await node.coordinator.stop()

    run(main())


def test_a_group_that_is_only_loading_is_listed_as_an_error_not_as_nothing() -> None:
    async def main() -> None:
        node = await Node().start()
        node.elect()
        response = await node.coordinator.list_groups(group_pb2.ListGroupsRequest(), CONTEXT)
        assert response.error_code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        await node.coordinator.stop()

    run(main())


def test_deleting_a_group_needs_it_empty() -> None:
    async def main() -> None:
        node = await Node().start()
        (leader,) = await node.stable_group(1)
        await node.commit({0: 1}, leader.member_id, 1)
        assert (await node.coordinator.delete_group("g"))[0] == ErrorCode.NON_EMPTY_GROUP
        assert (await node.coordinator.delete_group("nobody"))[0] == ErrorCode.GROUP_ID_NOT_FOUND
        await node.leave(leader.member_id)
        assert (await node.coordinator.delete_group("g"))[0] == ErrorCode.NONE
        assert await node.fetch() == {}
        assert (await node.describe()).error_code == ErrorCode.GROUP_ID_NOT_FOUND
        assert node.log.shard(node.config).facts() == ({}, {})
        await node.coordinator.stop()

    run(main())


def image_of(*topics: str) -> MetadataImage:
    delta = MetadataDelta()
    for offset, name in enumerate(topics):
        record = TopicRecord(name=name, topic_id=name.encode().ljust(16, b"-"))
        delta.replay(MetadataRecord(topic=record), offset)
    return delta.apply(len(topics), 1)


def test_offsets_of_a_deleted_topic_are_forgotten() -> None:
    """A topic that is made again under the same name starts at offset 0."""

    async def main() -> None:
        node = await Node().start()
        await node.commit({0: 5, 1: 6})
        await node.commit({0: 7}, topic="kept")
        await node.commit({0: 8}, group_id="other")
        before = image_of("t", "kept")
        node.coordinator.on_metadata_update(MetadataDelta.of_everything(before), before)
        assert await node.fetch(0, 1) == {0: 5, 1: 6}
        delta = MetadataDelta(before)
        delta.replay(MetadataRecord(remove_topic=RemoveTopicRecord(topic_id=before.topics["t"].topic_id)), 3)
        node.coordinator.on_metadata_update(delta, delta.apply(3, 1))
        await asyncio.sleep(0.1)
        assert await node.fetch(0, 1) == {0: -1, 1: -1}
        assert await node.fetch(0, group_id="other") == {0: -1}
        _, offsets = node.log.shard(node.config).facts()
        assert {group_id: list(kept) for group_id, kept in offsets.items()} == {"g": [("kept", 0)]}
        await node.coordinator.stop()

    run(main())


def test_a_bug_takes_the_partition_down_and_not_the_truth() -> None:
    """A state that an exception left half changed is not trusted: it is built again from the log."""

    async def main() -> None:
        node = await Node(load_retry_backoff_ms=0).start()
        (leader,) = await node.stable_group(1)
        waiting = asyncio.create_task(node.join(await node.new_member_id()))
        await asyncio.sleep(0)
        group = node.coordinator._partitions[0].shard.groups["g"]
        group._check_member = lambda *arguments: 1 / 0  # type: ignore[method-assign, assignment, return-value] # a bug
        with pytest.raises(ZeroDivisionError):
            await node.heartbeat(leader.member_id, 1)
        assert (await waiting).error_code == ErrorCode.NOT_COORDINATOR
        await node.coordinator.wait_loaded()
        assert await node.heartbeat(leader.member_id, 1) == 0
        await node.coordinator.stop()

    run(main())


def test_nothing_is_left_of_groups_that_nobody_joined() -> None:
    """A hostile client that asks for ids in many groups leaves no memory behind."""

    async def main() -> None:
        node = await Node().start()
        for n in range(50):
            await node.new_member_id(group_id=f"group-{n}")
        await asyncio.sleep(11)
        assert not list(node.coordinator._partitions[0].shard.views())
        assert node.log.ends == {}
        await node.coordinator.stop()

    run(main())


class TestBadInput:
    """Right error codes, never an exception."""

    @pytest.mark.parametrize(
        ("options", "expected"),
        [
            ({"group_id": ""}, ErrorCode.INVALID_GROUP_ID),
            ({"group_id": "x" * 250}, ErrorCode.INVALID_GROUP_ID),
            ({"group_id": "a\nb"}, ErrorCode.INVALID_GROUP_ID),
            ({"session_ms": 5_999}, ErrorCode.INVALID_SESSION_TIMEOUT),
            ({"session_ms": 1_800_001}, ErrorCode.INVALID_SESSION_TIMEOUT),
            ({"session_ms": -1}, ErrorCode.INVALID_SESSION_TIMEOUT),
            ({"session_ms": -(2**31)}, ErrorCode.INVALID_SESSION_TIMEOUT),
            ({"rebalance_ms": -1}, ErrorCode.INVALID_REQUEST),
            ({"client_id": "x" * 250}, ErrorCode.INVALID_REQUEST),
            ({"client_id": "\x1b[31m"}, ErrorCode.INVALID_REQUEST),
            ({"instance": "x" * 250}, ErrorCode.INVALID_REQUEST),
            ({"protocols": {}}, ErrorCode.INCONSISTENT_GROUP_PROTOCOL),
            ({"protocol_type": ""}, ErrorCode.INCONSISTENT_GROUP_PROTOCOL),
            ({"protocols": {"": b""}}, ErrorCode.INVALID_REQUEST),
            ({"protocols": {"range": bytes(300_000)}}, ErrorCode.INVALID_REQUEST),
            ({"protocols": {f"p{n}": b"" for n in range(33)}}, ErrorCode.INVALID_REQUEST),
            ({"member_id": "ghost"}, ErrorCode.UNKNOWN_MEMBER_ID),
            ({"member_id": "x" * 100_000}, ErrorCode.UNKNOWN_MEMBER_ID),
        ],
    )
    def test_join(self, options: dict[str, object], expected: ErrorCode) -> None:
        async def main() -> None:
            node = await Node().start()
            response = await node.join(**options)  # type: ignore[arg-type] # hostile on purpose
            assert response.error_code == expected
            assert len(response.error_message) < 1_000
            assert response.generation_id == -1
            await node.coordinator.stop()

        run(main())

    def test_a_repeated_protocol_is_refused(self) -> None:
        async def main() -> None:
            node = await Node().start()
            request = group_pb2.JoinGroupRequest(
                group_id="g",
                session_timeout_ms=10_000,
                protocol_type="consumer",
                protocols=[group_pb2.GroupProtocol(name="range"), group_pb2.GroupProtocol(name="range")],
            )
            assert (await node.coordinator.join_group(request, CONTEXT)).error_code == ErrorCode.INVALID_REQUEST
            await node.coordinator.stop()

        run(main())

    def test_requests_of_strangers(self) -> None:
        async def main() -> None:
            node = await Node().start()
            (leader,) = await node.stable_group(1)
            unknown, illegal = ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.ILLEGAL_GENERATION
            assert await node.heartbeat("", 1) == unknown
            assert await node.heartbeat("ghost", 1) == unknown
            assert await node.heartbeat("x" * 100_000, 1) == unknown
            assert await node.heartbeat(leader.member_id, 2**31 - 1) == illegal
            assert await node.heartbeat(leader.member_id, -(2**31)) == illegal
            assert await node.heartbeat("ghost", 1, group_id="nobody") == unknown
            assert await node.leave("ghost") == unknown
            assert await node.leave("") == unknown
            assert await node.leave("", instance="nobody") == unknown
            assert await node.leave("ghost", group_id="nobody") == unknown
            assert (await node.sync(leader, generation=0)).error_code == illegal
            assert (await node.sync(leader, instance="nobody")).error_code == unknown
            assert (await node.sync(leader, group_id="nobody")).error_code == unknown
            assert (await node.sync(leader, group_id="")).error_code == ErrorCode.INVALID_GROUP_ID
            assert await node.heartbeat(leader.member_id, 1, group_id="") == ErrorCode.INVALID_GROUP_ID
            assert await node.leave(leader.member_id, group_id="") == ErrorCode.INVALID_GROUP_ID
            assert (await node.describe("")).error_code == ErrorCode.INVALID_GROUP_ID
            assert (await node.describe()).state == "Stable"
            await node.coordinator.stop()

        run(main())

    def test_commits(self) -> None:
        async def main() -> None:
            node = await Node().start()
            invalid = ErrorCode.INVALID_REQUEST
            assert await node.commit({0: -1, 1: 4}) == [invalid, 0]
            assert await node.commit({0: -(2**63)}) == [invalid]
            assert await node.commit({-1: 1}) == [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
            assert await node.commit({0: 1}, topic="") == [ErrorCode.INVALID_TOPIC_EXCEPTION]
            assert await node.commit({0: 1}, topic="a/b") == [ErrorCode.INVALID_TOPIC_EXCEPTION]
            assert await node.commit({0: 1}, metadata="x" * 4_097) == [ErrorCode.OFFSET_METADATA_TOO_LARGE]
            assert await node.commit({0: 1}, metadata="é" * 2_049) == [ErrorCode.OFFSET_METADATA_TOO_LARGE]
            assert await node.commit({0: 1}, metadata="é" * 2_048) == [0]
            assert await node.commit({0: 2**63 - 1}) == [0]
            assert await node.commit({0: 1}, group_id="") == [ErrorCode.INVALID_GROUP_ID]
            assert await node.commit({0: 1}, "ghost", 3, group_id="nobody") == [ErrorCode.ILLEGAL_GENERATION]
            assert await node.commit({}) == []
            assert await node.fetch() == {0: 2**63 - 1, 1: 4}
            await node.coordinator.stop()

        run(main())

    def test_commits_for_partitions_that_the_cluster_does_not_have(self) -> None:
        async def main() -> None:
            node = await Node().start()
            node.coordinator._partition_exists = lambda topic, partition: partition < 2
            assert await node.commit({0: 1, 2: 1}) == [0, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
            await node.coordinator.stop()

        run(main())

    def test_memory_is_bounded(self) -> None:
        """max_groups_per_partition and max_offsets_per_group, reached."""

        async def main() -> None:
            node = await Node(max_groups_per_partition=2, max_offsets_per_group=3).start()
            policy = ErrorCode.POLICY_VIOLATION
            assert await node.commit({0: 1, 1: 1, 2: 1, 3: 1}) == [policy] * 4
            assert await node.commit({0: 1, 1: 1, 2: 1}) == [0] * 3
            assert await node.commit({3: 1}) == [policy]
            assert await node.commit({0: 2}) == [0]
            assert await node.commit({0: 1}, group_id="g2") == [0]
            assert await node.commit({0: 1}, group_id="g3") == [policy]
            assert (await node.join(group_id="g3")).error_code == policy
            await node.coordinator.stop()

        run(main())

    def test_config(self) -> None:
        with pytest.raises(InvalidConfigError, match="group_max_size=0"):
            GroupConfig(group_max_size=0)
        with pytest.raises(InvalidConfigError, match="exceeds"):
            GroupConfig(group_min_session_timeout_ms=10, group_max_session_timeout_ms=9)
        GroupConfig(group_initial_rebalance_delay_ms=0)


@pytest.mark.parametrize(
    ("peer", "host"),
    [
        ("ipv4:127.0.0.1:50000", "/127.0.0.1"),
        ("ipv6:[::1]:50000", "/::1"),
        ("host:9", "/host"),
        ("sim-1", "/sim-1"),
        ("", "/"),
        ("a\x00b:1", "/ab"),
    ],
)
def test_client_hosts_are_shown_as_kafka_shows_them(peer: str, host: str) -> None:
    assert client_host(peer) == host
