"""Public bug reports about consumer groups, as far as the coordinator can cause or prevent them.

The names in the docstrings are those of the reports: KAFKA-… issues, and other projects' changelogs.
"""

import asyncio

from kraftlog.proto import group_pb2
from kraftlog.proto.errors import ErrorCode
from tests.unit.coordinator.harness import CONTEXT, FakeLog, Node, run

RETENTION_MINUTES = 10
RETENTION_S = RETENTION_MINUTES * 60


def retention_node(log: FakeLog | None = None) -> Node:
    return Node(log=log, offsets_retention_minutes=RETENTION_MINUTES, offsets_retention_check_interval_ms=1_000)


async def beat(node: Node, member_id: str, generation: int, seconds: float) -> None:
    """Keep a member alive."""
    for _ in range(int(seconds / 5)):
        await asyncio.sleep(5)
        assert await node.heartbeat(member_id, generation) == 0


class TestOffsetsExpire:
    """KAFKA-13636, KAFKA-8069: kept while the group is not empty; expiry counts from when it became empty."""

    def test_not_while_the_group_has_a_member_that_commits_nothing(self) -> None:
        async def main() -> None:
            node = await retention_node().start()
            (leader,) = await node.stable_group(1)
            await node.commit({0: 7}, leader.member_id, 1)
            await beat(node, leader.member_id, 1, 3 * RETENTION_S)
            assert await node.fetch(0) == {0: 7}
            await node.coordinator.stop()

        run(main())

    def test_not_while_the_group_rebalances(self) -> None:
        async def main() -> None:
            node = await retention_node().start()
            rebalance_ms = 3 * RETENTION_S * 1_000
            leader, follower = await node.stable_group(2, rebalance_ms=rebalance_ms, session_ms=1_000_000)
            await node.commit({0: 7}, leader.member_id, 1)
            rejoin = asyncio.create_task(node.join(leader.member_id, rebalance_ms=rebalance_ms, session_ms=1_000_000))
            for _ in range(2 * RETENTION_MINUTES):
                await asyncio.sleep(60)
                assert await node.heartbeat(follower.member_id, 1) == ErrorCode.REBALANCE_IN_PROGRESS
            assert (await node.describe()).state == "PreparingRebalance"
            assert await node.fetch(0) == {0: 7}
            await node.coordinator.stop()
            await rejoin

        run(main())

    def test_a_retention_time_after_the_group_became_empty(self) -> None:
        async def main() -> None:
            node = await retention_node().start()
            (leader,) = await node.stable_group(1)
            await node.commit({0: 7}, leader.member_id, 1)
            await beat(node, leader.member_id, 1, 2 * RETENTION_S)
            await node.leave(leader.member_id)
            await asyncio.sleep(RETENTION_S - 5)
            assert await node.fetch(0) == {0: 7}
            await asyncio.sleep(10)
            assert await node.fetch(0) == {0: -1}
            assert (await node.describe()).error_code == ErrorCode.GROUP_ID_NOT_FOUND
            assert node.log.shard(node.config).facts() == ({}, {}), "tombstones for every fact"
            await node.coordinator.stop()

        run(main())

    def test_counting_goes_on_through_a_move_of_the_coordinator(self) -> None:
        """Neither at once after the move, nor from the start again."""

        async def main() -> None:
            node = await retention_node().start()
            (leader,) = await node.stable_group(1)
            await node.commit({0: 7}, leader.member_id, 1)
            await beat(node, leader.member_id, 1, 2 * RETENTION_S)
            await node.fail_over()
            await asyncio.sleep(5)
            assert await node.fetch(0) == {0: 7}
            await node.leave(leader.member_id)
            await asyncio.sleep(RETENTION_S / 2)
            await node.fail_over()
            await asyncio.sleep(RETENTION_S / 2 - 5)
            assert await node.fetch(0) == {0: 7}
            await asyncio.sleep(10)
            assert await node.fetch(0) == {0: -1}
            await node.coordinator.stop()

        run(main())

    def test_not_at_once_if_the_members_died_with_their_coordinator(self) -> None:
        """The log says that the group has members; they lapse here, and only then is it empty."""

        async def main() -> None:
            node = await retention_node().start()
            (leader,) = await node.stable_group(1)
            await node.commit({0: 7}, leader.member_id, 1)
            node.coordinator.on_resigned(0)
            await asyncio.sleep(2 * RETENTION_S)
            node.elect()
            await node.coordinator.wait_loaded()
            await asyncio.sleep(RETENTION_S)
            assert await node.fetch(0) == {0: 7}
            await asyncio.sleep(15)
            assert await node.fetch(0) == {0: -1}
            await node.coordinator.stop()

        run(main())

    def test_of_a_group_without_members_each_from_its_commit(self) -> None:
        async def main() -> None:
            node = await retention_node().start()
            await node.commit({0: 1, 1: 1})
            await asyncio.sleep(RETENTION_S / 2)
            await node.commit({1: 2})
            await asyncio.sleep(RETENTION_S / 2 + 5)
            assert await node.fetch() == {1: 2}
            await asyncio.sleep(RETENTION_S / 2)
            assert await node.fetch() == {}
            await node.coordinator.stop()

        run(main())

    def test_an_operators_commit_for_an_empty_group_lives_its_full_time(self) -> None:
        async def main() -> None:
            node = await retention_node().start()
            (leader,) = await node.stable_group(1)
            await node.leave(leader.member_id)
            await asyncio.sleep(RETENTION_S - 5)
            assert await node.commit({0: 3}) == [0]
            await asyncio.sleep(RETENTION_S - 5)
            assert await node.fetch(0) == {0: 3}
            await node.coordinator.stop()

        run(main())


def test_a_leader_that_never_syncs_is_removed_after_the_rebalance_timeout() -> None:
    """KAFKA-12890: it sent heartbeats, and the group stayed in CompletingRebalance for ever."""

    async def main() -> None:
        node = await Node().start()
        ids = [await node.new_member_id() for _ in range(3)]
        joins = await asyncio.gather(*(node.join(member_id) for member_id in ids))
        stuck = next(joined for joined in joins if joined.member_id == joined.leader)
        others = [joined for joined in joins if joined is not stuck]
        syncs = [asyncio.create_task(node.sync(joined)) for joined in others]
        for _ in range(10):
            await asyncio.sleep(2.9)
            assert await node.heartbeat(stuck.member_id, 1) == 0
        assert (await node.describe()).state == "CompletingRebalance"
        await asyncio.sleep(2)
        assert await node.heartbeat(stuck.member_id, 1) == ErrorCode.UNKNOWN_MEMBER_ID
        assert [(await sync).error_code for sync in syncs] == [ErrorCode.REBALANCE_IN_PROGRESS] * 2
        again = await asyncio.gather(*(node.join(joined.member_id) for joined in others))
        assignments = {joined.member_id: b"p" for joined in again}
        synced = await asyncio.gather(*(node.sync(joined, assignments) for joined in again))
        assert [answer.assignment for answer in synced] == [b"p", b"p"]
        await node.coordinator.stop()

    run(main())


def test_a_follower_that_never_syncs_is_removed_too() -> None:
    """KAFKA-12890: the group is Stable already; partitions of a member that does not know it must not starve."""

    async def main() -> None:
        node = await Node().start()
        ids = [await node.new_member_id() for _ in range(2)]
        joins = await asyncio.gather(*(node.join(member_id) for member_id in ids))
        leader = next(joined for joined in joins if joined.member_id == joined.leader)
        silent = next(joined for joined in joins if joined is not leader)
        assert (await node.sync(leader, {leader.member_id: b"p0", silent.member_id: b"p1"})).error_code == 0
        for _ in range(9):
            await asyncio.sleep(3)
            assert await node.heartbeat(leader.member_id, 1) == 0
            assert await node.heartbeat(silent.member_id, 1) == 0
        await asyncio.sleep(4)
        assert await node.heartbeat(leader.member_id, 1) == ErrorCode.REBALANCE_IN_PROGRESS
        assert await node.heartbeat(silent.member_id, 1) == ErrorCode.UNKNOWN_MEMBER_ID
        await node.coordinator.stop()

    run(main())


def test_of_two_consumers_with_one_instance_id_the_older_is_fenced() -> None:
    """KAFKA-8225: both consumed. The older one must hear FENCED_INSTANCE_ID, also after the coordinator moved."""

    async def main() -> None:
        node = await Node().start()
        older = await node.join(instance="one")
        assert (await node.sync(older, {older.member_id: b"p0"}, instance="one")).assignment == b"p0"
        newer = await node.join(instance="one")
        assert (newer.error_code, newer.generation_id) == (0, older.generation_id)
        assert (await node.sync(newer, instance="one")).assignment == b"p0"
        fenced = ErrorCode.FENCED_INSTANCE_ID
        for _ in range(2):
            assert await node.heartbeat(older.member_id, 1, instance="one") == fenced
            assert await node.commit({0: 99}, older.member_id, 1, instance="one") == [fenced]
            assert (await node.sync(older, instance="one")).error_code == fenced
            assert (await node.join(older.member_id, instance="one")).error_code == fenced
            assert await node.leave(older.member_id, instance="one") == fenced
            assert await node.heartbeat(newer.member_id, 1, instance="one") == 0
            await node.fail_over()
        assert await node.fetch(0) == {0: -1}
        await node.coordinator.stop()

    run(main())


def test_the_newer_instance_is_answered_only_when_its_id_is_durable() -> None:
    """Else a fail-over would fence it, and bring back the older one."""

    async def main() -> None:
        node = await Node().start()
        older = await node.join(instance="one")
        await node.sync(older, {older.member_id: b"p0"}, instance="one")
        node.log.hold()
        newer = asyncio.create_task(node.join(instance="one"))
        await asyncio.sleep(1)
        assert not newer.done()
        node.log.release()
        assert (await newer).error_code == 0
        await node.coordinator.stop()

    run(main())


def test_a_commit_of_a_stale_member_is_refused_and_changes_nothing() -> None:
    """franz-go v1.21.3: a member paused past its session must hear that it is out."""

    async def main() -> None:
        node = await Node().start()
        sleeper, other = await node.stable_group(2)
        await node.commit({0: 10}, sleeper.member_id, 1)
        await asyncio.sleep(6)
        await node.heartbeat(other.member_id, 1)
        await asyncio.sleep(6)
        assert await node.heartbeat(other.member_id, 1) == ErrorCode.REBALANCE_IN_PROGRESS
        rejoined = await node.join(other.member_id)
        await node.sync(rejoined, {other.member_id: b"all"})
        await node.commit({0: 20}, other.member_id, 2)
        assert await node.commit({0: 11}, sleeper.member_id, 1) == [ErrorCode.UNKNOWN_MEMBER_ID]
        assert await node.commit({0: 11}, other.member_id, 1) == [ErrorCode.ILLEGAL_GENERATION]
        assert await node.commit({0: 11}) == [ErrorCode.UNKNOWN_MEMBER_ID]
        assert await node.fetch(0) == {0: 20}
        await node.coordinator.stop()

    run(main())


def test_each_refusal_costs_one_rejoin() -> None:
    """KAFKA-9140, KAFKA-13891: after REBALANCE_IN_PROGRESS, ILLEGAL_GENERATION or UNKNOWN_MEMBER_ID one JoinGroup
    brings the member back, with its id while that is known."""

    async def main() -> None:
        node = await Node().start()
        leader, follower = await node.stable_group(2)
        rejoining = asyncio.create_task(node.join(leader.member_id))
        await asyncio.sleep(0)
        assert (await node.sync(follower)).error_code == ErrorCode.REBALANCE_IN_PROGRESS
        joins = [await node.join(follower.member_id), await rejoining]
        assert [joined.generation_id for joined in joins] == [2, 2]
        assert {joined.member_id for joined in joins} == {leader.member_id, follower.member_id}
        assert (await node.sync(follower)).error_code == ErrorCode.ILLEGAL_GENERATION
        again = await node.join(follower.member_id)
        assert (again.error_code, again.generation_id) == (0, 2), "same generation: nobody else is disturbed"
        syncs = await asyncio.gather(*(node.sync(joined, {follower.member_id: b"p1"}) for joined in joins))
        assert [synced.error_code for synced in syncs] == [0, 0]
        await node.leave(follower.member_id)
        assert (await node.join(follower.member_id)).error_code == ErrorCode.UNKNOWN_MEMBER_ID
        fresh = await node.new_member_id()
        joined = await asyncio.gather(node.join(fresh), node.join(leader.member_id))
        assert [answer.generation_id for answer in joined] == [3, 3]
        await node.coordinator.stop()

    run(main())


def test_commits_and_heartbeats_during_a_rebalance_start_no_further_one() -> None:
    """KAFKA-12495, platformatic/kafka 370: 20 members commit every 50 ms while one is slow to join."""

    def rebalances(commit_interval_s: float) -> int:
        async def main() -> int:
            node = await Node().start()
            joins = await node.stable_group(20)
            group = node.coordinator._partitions[0].shard.groups["g"]
            before = group.rebalances

            async def member(joined: group_pb2.JoinGroupResponse, slow: bool) -> None:
                generation = joined.generation_id
                while await node.heartbeat(joined.member_id, generation) == 0:
                    await node.commit({0: 1}, joined.member_id, generation)
                    await asyncio.sleep(commit_interval_s)
                if slow:
                    for _ in range(int(10 / commit_interval_s)):
                        code = await node.heartbeat(joined.member_id, generation)
                        assert code == ErrorCode.REBALANCE_IN_PROGRESS
                        assert await node.commit({0: 1}, joined.member_id, generation) == [0]
                        await asyncio.sleep(commit_interval_s)
                again = await node.join(joined.member_id)
                assert again.error_code == 0
                synced = await node.sync(again, {m.member_id: b"p" for m in again.members})
                assert synced.error_code == 0
                for _ in range(int(5 / commit_interval_s)):
                    await node.commit({0: 1}, again.member_id, again.generation_id)
                    assert await node.heartbeat(again.member_id, again.generation_id) == 0
                    await asyncio.sleep(commit_interval_s)

            members = [asyncio.create_task(member(joined, slow=joined is joins[-1])) for joined in joins]
            fresh = await node.new_member_id()
            newcomer = await node.join(fresh)
            assert (await node.sync(newcomer)).assignment == b"p"
            await asyncio.gather(*members)
            await node.coordinator.stop()
            return group.rebalances - before

        return run(main())

    assert rebalances(0.05) == rebalances(1.0) <= 2


def test_offsets_are_never_zero_or_absent_by_mistake() -> None:
    """Jepsen's Bufstream report: fetched every ms while 10,000 offsets are loaded again and again."""

    async def main() -> None:
        node = await Node(offsets_load_buffer_size=10_000).start()
        for first in range(0, 10_000, 500):
            codes = await node.commit(dict.fromkeys(range(first, first + 500), 7))
            assert set(codes) == {0}
        request = group_pb2.OffsetFetchRequest(
            group_id="g", partitions=[group_pb2.GroupTopicPartition(topic="t", partition=p) for p in (0, 4_999, 9_999)]
        )
        retriable = {ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.NOT_COORDINATOR}
        seen: set[int] = set()

        async def reader() -> None:
            for _ in range(200):
                response = await node.coordinator.offset_fetch(request, CONTEXT)
                seen.add(response.error_code)
                if response.error_code:
                    assert response.error_code in retriable
                    assert not response.partitions
                else:
                    assert [found.offset for found in response.partitions] == [7, 7, 7]
                await asyncio.sleep(0)

        for _ in range(3):
            reading = asyncio.create_task(reader())
            await asyncio.sleep(0)
            node.coordinator.on_resigned(0)
            await asyncio.sleep(0)
            node.elect()
            await asyncio.gather(reading, node.coordinator.wait_loaded())
        assert seen == {0, *retriable}
        await node.coordinator.stop()

    run(main())
