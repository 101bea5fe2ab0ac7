"""Several nodes and their transport: elections, failover, observers, reads, and voters that come and go."""

import asyncio
import logging

import pytest

from kraftlog.kraft.raft import RaftConfig, ReplicaKey
from kraftlog.proto.errors import (
    DuplicateVoterError,
    InvalidRequestError,
    NotControllerError,
    RequestTimedOutError,
    VoterNotFoundError,
)
from kraftlog.proto.records import iter_headers
from kraftlog.server.quorum.snapshots import SnapshotConfig
from tests.unit.quorum.cluster import (
    ELECTION_MS,
    FETCH_MS,
    Cluster,
    create,
    endpoint_of,
    live_broker,
    number_of,
    with_cluster,
)


def batch_ends(cluster: Cluster, number: int) -> list[int]:
    """The last offset of each batch in the log of a node."""
    log = cluster.machines[number].log
    assert log is not None
    ends = [log.log_start_offset - 1]
    while ends[-1] + 1 < log.log_end_offset:
        read = log.read(ends[-1] + 1, 10**6, end_offset=log.log_end_offset)
        ends += [header.last_offset for _, header in iter_headers(read.records)]
    return ends[1:]


@pytest.mark.parametrize("seed", range(4))
def test_three_voters_elect_and_commit(seed: int) -> None:
    """Over streams that they dial themselves, knowing nothing but bootstrap addresses."""

    async def work(cluster: Cluster) -> None:
        await cluster.start(1, 2, 3)
        leader = await cluster.leader(seconds=4)
        await live_broker(leader)
        await asyncio.gather(*(create(leader, f"t{n}") for n in range(20)))
        await cluster.converge()
        assert all(len(node.image.topics) == 20 for node in cluster.running)

    with_cluster(work, seed=seed)


@pytest.mark.parametrize("seed", range(10))
def test_voters_that_start_together_have_a_leader_before_an_election_timeout(seed: int) -> None:
    """Nobody leads who could be disturbed: they stand for election as soon as a majority is connected."""

    async def work(cluster: Cluster) -> None:
        began = cluster.loop.time()
        await cluster.start(1, 2, 3)
        await cluster.leader()
        assert cluster.loop.time() - began < ELECTION_MS / 1000
        for number in (1, 2, 3):
            cluster.kill(number)
        began = cluster.loop.time()
        await cluster.start(3, 2, 1)
        await cluster.leader()
        assert cluster.loop.time() - began < ELECTION_MS / 1000

    with_cluster(work, seed=seed)


def test_voter_that_starts_beside_a_leader_disturbs_nobody() -> None:
    async def work(cluster: Cluster) -> None:
        await cluster.start(1, 2)
        leader = await cluster.leader()
        term = leader.term
        await cluster.start(3)
        await cluster.until(lambda: cluster.node(3).leader == leader.leader)
        await asyncio.sleep(2 * ELECTION_MS / 1000)
        assert (cluster.node(3).term, leader.is_leader) == (term, True)

    with_cluster(work)


def test_followers_refuse_operations_and_name_the_leader() -> None:
    async def work(cluster: Cluster) -> None:
        await cluster.start(1, 2, 3)
        leader = await cluster.leader()
        await cluster.converge()
        for node in cluster.running:
            assert node.leader_id == number_of(leader)
            if node is not leader:
                with pytest.raises(NotControllerError):
                    await create(node, "x")

    with_cluster(work)


@pytest.mark.parametrize("seed", range(4))
def test_the_others_go_on_after_a_leader_is_killed(seed: int) -> None:
    """Within two election time-outs; what was answered is there, and the killed one catches up when it is back."""

    async def work(cluster: Cluster) -> None:
        await cluster.start(1, 2, 3)
        old = await cluster.leader()
        await live_broker(old)
        await create(old, "before")
        number = number_of(old)
        await cluster.converge()
        cluster.kill(number)
        began = cluster.loop.time()
        new = await cluster.leader()
        assert cluster.loop.time() - began < 2 * ELECTION_MS / 1000 + 0.2
        assert "before" in new.image.topics
        await create(new, "after")
        await cluster.start(number)
        await cluster.converge()
        assert {"before", "after"} == set(cluster.node(number).image.topics)
        assert number_of(await cluster.leader()) == number_of(new), "a node that comes back deposes nobody"

    with_cluster(work, seed=seed)


@pytest.mark.parametrize("seed", range(3))
def test_leader_that_is_cut_off_steps_down_and_comes_back_quietly(seed: int) -> None:
    """Check-quorum: it knows within an election time-out; what it could not commit fails. The streams are dialled anew."""

    async def work(cluster: Cluster) -> None:
        await cluster.start(1, 2, 3)
        old = await cluster.leader()
        await live_broker(old)
        number = number_of(old)
        await cluster.converge()
        cluster.cut_off(number)
        lost = asyncio.ensure_future(create(old, "lost"))
        await cluster.until(lambda: not old.is_leader, seconds=2 * ELECTION_MS / 1000)
        with pytest.raises(NotControllerError):
            await lost
        new = await cluster.leader(other_than=number)
        await create(new, "kept")
        term = new.term
        await asyncio.sleep(10)
        cluster.network.heal()
        await cluster.converge()
        assert set(old.image.topics) == {"kept"}
        assert new.is_leader
        assert new.term == term, "pre-vote: the one that was away raised no term"

    with_cluster(work, seed=seed)


def test_followers_that_are_cut_off_are_reached_again_soon() -> None:
    """A stream through a partition looks alive for long; silence ends it, and the next dial finds the way."""

    async def work(cluster: Cluster) -> None:
        await cluster.start(1, 2, 3)
        leader = await cluster.leader()
        follower = number_of(leader) % 3 + 1
        await cluster.converge()
        cluster.cut_off(follower)
        await live_broker(leader)
        await cluster.until(lambda: cluster.machines[follower].key not in cluster.peers(number_of(leader)).connected)
        cluster.network.heal()
        assert await cluster.until(lambda: cluster.node(follower).image == leader.image) < 5

    with_cluster(work)


@pytest.mark.parametrize("seed", range(3))
def test_voter_that_nobody_can_dial_votes_and_leads(seed: int) -> None:
    """Requests go on the stream that there is, answers on the stream of their request."""

    async def work(cluster: Cluster) -> None:
        cluster.hidden = {1}
        await cluster.start(1, 2)
        leader = await cluster.leader()
        await live_broker(leader)
        other = 3 - number_of(leader)
        await leader.transfer_leadership(cluster.machines[other].key)
        await create(await cluster.leader(other_than=number_of(leader)), "topic")
        await cluster.converge()
        assert cluster.peers(2).addresses.endpoint(cluster.machines[1].key) is None

    with_cluster(work, voters=[1, 2], bootstrap=[2], seed=seed)


# --- observers --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(3))
def test_observer_has_the_image_and_never_leads(seed: int) -> None:
    """It finds the leader through any node that it can reach, here one that does not lead."""

    async def work(cluster: Cluster) -> None:
        await cluster.start(1, 2, 3)
        leader = await cluster.leader()
        await live_broker(leader)
        await create(leader, "before")
        cluster.bootstrap = [endpoint_of(number_of(leader) % 3 + 1)]
        await cluster.start(4)
        await cluster.converge()
        await create(leader, "after")
        await cluster.converge()
        assert set(cluster.node(4).image.topics) == {"before", "after"}
        await cluster.until(lambda: all(state.lag == 0 for state in leader.describe().observers))  # its answer is heard
        (state,) = leader.describe().observers
        assert (state.key, state.endpoint, state.lag) == (cluster.machines[4].key, endpoint_of(4), 0)
        for number in (1, 2, 3):
            cluster.kill(number)
        await asyncio.sleep(30)
        assert cluster.node(4).term == leader.term
        assert cluster.node(4).leader is None

    with_cluster(work, seed=seed)


@pytest.mark.parametrize("seed", range(3))
def test_observer_follows_to_the_next_leader(seed: int) -> None:
    """When its leader is killed it looks at the others at once, and they tell it of the new one as soon as they know."""

    async def work(cluster: Cluster) -> None:
        await cluster.start(1, 2, 3, 4)
        old = await cluster.leader()
        await live_broker(old)
        await cluster.converge()
        cluster.kill(number_of(old))
        new = await cluster.leader()
        took = await cluster.until(lambda: cluster.node(4).leader_id == number_of(new))
        assert took < 0.1
        await create(new, "after")
        await cluster.converge()

    with_cluster(work, seed=seed)


def test_observer_leaves_a_node_that_knows_no_leader() -> None:
    """It is not fed there, however alive that node is."""

    async def work(cluster: Cluster) -> None:
        await cluster.start(1, 2, 3)
        leader = await cluster.leader()
        lonely = number_of(leader) % 3 + 1
        for other in (1, 2, 3):
            if other != lonely:
                cluster.network.partition(f"n{lonely}", f"n{other}")
        await cluster.until(lambda: cluster.node(lonely).leader is None)
        cluster.bootstrap = [endpoint_of(lonely), endpoint_of(number_of(leader))]
        await cluster.start(4)
        await cluster.until(lambda: cluster.node(4).leader_id == number_of(leader), seconds=2 * FETCH_MS / 1000 + 1)

    with_cluster(work)


def test_idle_streams_stay() -> None:
    """Signs of life: nothing is dialled again in a cluster in which nothing happens."""

    async def work(cluster: Cluster) -> None:
        await cluster.start(1, 2, 3, 4)
        await cluster.converge()
        await asyncio.sleep(5)
        events: list[str] = []
        cluster.network.on_event = events.append
        await asyncio.sleep(60)
        assert not events

    with_cluster(work)


def test_observer_that_is_gone_is_forgotten() -> None:
    """Nothing is kept for a node that may never come back."""

    async def work(cluster: Cluster) -> None:
        await cluster.start(1, 2, 3, 4)
        leader = await cluster.leader()
        await cluster.until(lambda: len(leader.describe().observers) == 1)
        cluster.kill(4)
        await cluster.until(lambda: not leader.describe().observers)

    with_cluster(work)


def test_observer_of_a_single_voter() -> None:
    """The lone leader sends heartbeats as soon as somebody listens, and stops when nobody does."""

    async def work(cluster: Cluster) -> None:
        await cluster.start(1)
        await cluster.start(2)
        await cluster.converge()
        await asyncio.sleep(20)
        assert cluster.node(2).leader_id == 1
        cluster.kill(2)
        await cluster.until(lambda: not cluster.node(1).describe().observers)
        assert "tick" not in cluster.node(1)._timers

    with_cluster(work, voters=[1], bootstrap=[1])


# --- snapshots --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(3))
def test_late_observer_catches_up_through_a_snapshot(seed: int) -> None:
    """The log behind the snapshot is gone: it gets the image in chunks, then what came after."""

    async def work(cluster: Cluster) -> None:
        cluster.snapshots = SnapshotConfig(max_record_bytes_between_snapshots=2_000)
        cluster.raft = RaftConfig(max_snapshot_chunk_bytes=200)
        await cluster.start(1, 2, 3)
        leader = await cluster.leader()
        await live_broker(leader)
        for number in range(60):
            await create(leader, f"t{number}")
        await cluster.until(lambda: leader._core.log.snapshot.last_offset > 50)
        assert len(leader._core.log.snapshot.data) > 10 * 200
        await cluster.start(4)
        await create(leader, "last")
        await cluster.converge()
        observer = cluster.node(4)
        assert observer.image == leader.image
        assert "t0" in observer.image.topics
        assert observer._core.log.snapshot.last_offset > 50
        cluster.kill(4)
        await cluster.start(4)
        await cluster.converge()

    with_cluster(work, seed=seed)


@pytest.mark.parametrize("seed", range(3))
def test_voter_that_was_away_for_long_catches_up_through_a_snapshot(seed: int) -> None:
    """And knows from it who votes, and where: it is elected afterwards."""

    async def work(cluster: Cluster) -> None:
        cluster.snapshots = SnapshotConfig(max_record_bytes_between_snapshots=2_000)
        await cluster.start(1, 2)
        leader = await cluster.leader()
        await live_broker(leader)
        for number in range(60):
            await create(leader, f"t{number}")
        await cluster.until(lambda: leader._core.log.snapshot.last_offset > 50)
        cluster.bootstrap = [endpoint_of(number_of(leader))]
        await cluster.start(3)
        await cluster.converge()
        await cluster.stop(number_of(leader))
        await create(await cluster.leader(), "after")
        await cluster.converge()
        assert len(cluster.node(3).image.topics) == 61

    with_cluster(work, seed=seed)


# --- refusals ---------------------------------------------------------------------------------------------------


def refusals(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]


def test_node_of_another_cluster_is_refused(caplog: pytest.LogCaptureFixture) -> None:
    """Both ends say so, each once, however often it tries."""

    async def work(cluster: Cluster) -> None:
        cluster.cluster_ids[4] = "another"
        await cluster.start(1, 4)
        await asyncio.sleep(30)
        assert cluster.node(4).leader is None
        assert not cluster.node(1).describe().observers

    with_cluster(work, voters=[1], bootstrap=[1])
    texts = refusals(caplog)
    assert len(texts) == 2
    assert all("'another'" in text and "bootstrap.servers" in text for text in texts)


def test_node_with_a_replaced_disk_is_another_replica(caplog: pytest.LogCaptureFixture) -> None:
    """KIP-853: it has lost its vote with its log. It observes, and the operator exchanges the voter without a stop."""

    async def work(cluster: Cluster) -> None:
        await cluster.start(1, 2, 3)
        await live_broker(await cluster.leader())
        old = cluster.machines[3].key
        cluster.kill(3)
        cluster.machines[3].replace_disk()
        await cluster.start(3)
        leader = await cluster.leader(other_than=3)
        await cluster.until(lambda: [state.key.node_id for state in leader.describe().observers] == [3])
        await asyncio.sleep(10)
        with pytest.raises(DuplicateVoterError, match="remove that first"):
            await leader.add_voter(cluster.machines[3].key)
        await leader.remove_voter(old)
        await leader.add_voter(cluster.machines[3].key)
        await cluster.converge()
        assert {key.node_id for key in leader.voters} == {1, 2, 3}
        cluster.kill(number_of(leader) % 2 + 1)
        await create(await cluster.leader(), "with the vote of 3")

    with_cluster(work)
    replaced = [text for text in refusals(caplog) if "disk was replaced" in text]
    assert 1 <= len(replaced) <= 4  # by each of the two others, at both ends


# --- reads ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(3))
def test_read_barrier_shows_what_was_answered_before(seed: int) -> None:
    """On every node, also on an observer that lags."""

    async def work(cluster: Cluster) -> None:
        await cluster.start(1, 2, 3, 4)
        leader = await cluster.leader()
        await live_broker(leader)
        await cluster.converge()
        for number in range(10):
            await create(leader, f"t{number}")
            reader = cluster.node(cluster.random.randint(1, 4))
            await reader.read_barrier()
            assert f"t{number}" in reader.image.topics

    with_cluster(work, seed=seed)


def test_barriers_that_wait_share_a_round() -> None:
    """A thousand readers cost two rounds: the one under way, and the next."""

    async def work(cluster: Cluster) -> None:
        await cluster.start(1, 2, 3)
        leader = await cluster.leader()
        await cluster.converge()
        asked = 0
        original = leader.answer_read_index

        def count(answer: object) -> None:
            nonlocal asked
            asked += 1
            original(answer)  # type: ignore[arg-type] # passed on

        leader.answer_read_index = count  # type: ignore[method-assign] # to look on
        await asyncio.gather(*(leader.read_barrier() for _ in range(1_000)))
        assert asked <= 2

    with_cluster(work)


def test_read_on_a_leader_that_is_cut_off_fails() -> None:
    """It may have been deposed: rather no answer than an old one. So on a follower, and before there is a leader."""

    async def work(cluster: Cluster) -> None:
        await cluster.start(1)
        with pytest.raises(NotControllerError, match="leader"):
            await cluster.node(1).read_barrier(500)
        await cluster.start(2, 3)
        leader = await cluster.leader()
        await cluster.converge()
        cluster.cut_off(number_of(leader))
        with pytest.raises(NotControllerError):
            await leader.read_barrier(3_000)
        new = await cluster.leader(other_than=number_of(leader))
        await new.read_barrier(3_000)

    with_cluster(work)


def test_read_goes_to_the_next_leader_within_its_deadline() -> None:
    """A reader that asks while the leader dies waits for the next one."""

    async def work(cluster: Cluster) -> None:
        await cluster.start(1, 2, 3, 4)
        old = await cluster.leader()
        await live_broker(old)
        await create(old, "before")
        cluster.kill(number_of(old))
        await cluster.node(4).read_barrier(10_000)
        assert "before" in cluster.node(4).image.topics

    with_cluster(work)


# --- membership -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(3))
def test_growth_from_one_voter_to_three_and_back(seed: int) -> None:
    """Without a stop: topics are created all the while. In the end the first node alone leads again."""

    async def work(cluster: Cluster) -> None:
        await cluster.start(1)
        leader = cluster.node(1)
        await live_broker(leader)
        await cluster.start(2, 3)
        created = 0
        is_done = False

        async def go_on_creating() -> None:
            nonlocal created
            while not is_done:
                await create(leader, f"t{created}")
                created += 1
                await asyncio.sleep(0.005)

        writing = asyncio.ensure_future(go_on_creating())
        for number in (2, 3):
            await leader.add_voter(cluster.machines[number].key)
        assert {key.node_id for key in leader.voters} == {1, 2, 3}
        with pytest.raises(DuplicateVoterError):
            await leader.add_voter(cluster.machines[2].key)
        for number in (3, 2):
            await leader.remove_voter(cluster.machines[number].key)
        with pytest.raises(VoterNotFoundError):
            await leader.remove_voter(cluster.machines[2].key)
        with pytest.raises(InvalidRequestError, match="only voter"):
            await leader.remove_voter(cluster.machines[1].key)
        is_done = True
        await writing
        await cluster.converge()
        assert created > 5
        assert all(len(node.image.topics) == created for node in cluster.running)
        assert all(node.voters == {cluster.machines[1].key} for node in cluster.running)
        cluster.kill(2)
        cluster.kill(3)
        await create(leader, "alone")

    with_cluster(work, voters=[1], bootstrap=[1], seed=seed)


def test_grown_cluster_survives_the_first_node_and_knows_its_addresses() -> None:
    """After a restart of all, the voters record in the log says where the voters are: no bootstrap address helps."""

    async def work(cluster: Cluster) -> None:
        await cluster.start(1, 2, 3)
        for number in (2, 3):
            await cluster.node(1).add_voter(cluster.machines[number].key)
        await cluster.converge()
        for number in (1, 2, 3):
            cluster.kill(number)
        cluster.bootstrap = []
        await cluster.start(2, 3)
        leader = await cluster.leader()
        assert number_of(leader) in (2, 3)
        await live_broker(leader)

    with_cluster(work, voters=[1], bootstrap=[1])


def test_leader_that_removes_itself_hands_over() -> None:
    """It observes from then on, and the others elect."""

    async def work(cluster: Cluster) -> None:
        await cluster.start(1, 2, 3)
        old = await cluster.leader()
        key = cluster.machines[number_of(old)].key
        await live_broker(old)
        await old.remove_voter(key)
        await cluster.until(lambda: not old.is_leader)
        new = await cluster.leader(other_than=key.node_id)
        await create(new, "after")
        await cluster.converge()
        assert key not in new.voters
        assert [state.key for state in new.describe().observers] == [key]

    with_cluster(work)


def test_operations_of_a_moment_share_a_batch_that_closes_before_a_voter_change_and_a_hand_over() -> None:
    """A batch knows its offsets from its first record on: nothing comes between, and no leader leaves it behind."""

    async def work(cluster: Cluster) -> None:
        await cluster.start(1, 2, 3)
        old = await cluster.leader()
        await live_broker(old)
        await old.read_barrier()
        followers = [cluster.machines[number].key for number in (1, 2, 3) if number != number_of(old)]
        before = len(batch_ends(cluster, number_of(old)))
        await asyncio.gather(
            *(create(old, f"t{n}") for n in range(20)),
            old.remove_voter(followers[1]),
            *(create(old, f"u{n}") for n in range(20)),
            old.transfer_leadership(followers[0]),
        )
        await cluster.converge()
        assert len(batch_ends(cluster, number_of(old))) == before + 3 + 1, "three of these, and the next leader's first"
        assert len(cluster.node(followers[0].node_id).image.topics) == 40
        assert followers[1] not in old.voters
        assert old.leader == followers[0]

    with_cluster(work)


def test_voter_that_was_removed_while_it_was_away_learns_of_it() -> None:
    """W05 of the fault list: it disturbs nobody, and follows as an observer."""

    async def work(cluster: Cluster) -> None:
        await cluster.start(1, 2, 3)
        leader = await cluster.leader()
        away = number_of(leader) % 3 + 1
        await cluster.converge()
        cluster.cut_off(away)
        await leader.remove_voter(cluster.machines[away].key)
        term = leader.term
        await asyncio.sleep(50 * ELECTION_MS / 1000)
        cluster.network.heal()
        await cluster.converge()
        assert leader.is_leader
        assert leader.term == term
        assert cluster.node(away).voters == leader.voters

    with_cluster(work)


def test_voter_whose_fellow_voters_are_all_gone_finds_those_who_took_their_place() -> None:
    """It was away while the quorum moved to other nodes: only the bootstrap servers know somebody that is still there."""

    async def work(cluster: Cluster) -> None:
        await cluster.start(1, 2, 3, 4, 5)
        keys = {number: cluster.machines[number].key for number in range(1, 6)}
        leader = await cluster.leader()
        if number_of(leader) == 3:
            await leader.transfer_leadership(keys[1])
            leader = await cluster.leader(other_than=3)
        await cluster.converge()
        cluster.cut_off(3)
        for number in (4, 5):
            await leader.add_voter(keys[number])
        await leader.remove_voter(keys[3])
        await leader.transfer_leadership(keys[4])
        leader = await cluster.leader(other_than=number_of(leader))
        for number in (1, 2):
            await leader.remove_voter(keys[number])
        cluster.kill(1)
        cluster.kill(2)
        cluster.network.heal()
        await cluster.until(lambda: cluster.node(3).voters == {keys[4], keys[5]})
        await cluster.converge()

    with_cluster(work, bootstrap=[1, 2, 3, 4])


def test_node_that_is_not_there_gets_no_vote() -> None:
    """It would only make commits harder."""

    async def work(cluster: Cluster) -> None:
        await cluster.start(1)
        with pytest.raises(RequestTimedOutError, match="not connected"):
            await cluster.node(1).add_voter(ReplicaKey(9), endpoint_of(9))
        assert len(cluster.node(1).voters) == 1

    with_cluster(work, voters=[1], bootstrap=[1])


# --- stopping, describing ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(4))
def test_one_of_two_voters_that_stops_in_order_leaves_a_leader(seed: int) -> None:
    """It takes both votes to elect, so its own is out before it is gone; without it, nothing more can be committed."""

    async def work(cluster: Cluster) -> None:
        await cluster.start(1, 2)
        old = await cluster.leader()
        await cluster.converge()
        term = old.term
        await cluster.stop(number_of(old))
        (left,) = cluster.running
        assert (left.term, left.leader) == (term + 1, cluster.machines[number_of(left)].key)

    with_cluster(work, voters=[1, 2], seed=seed)


@pytest.mark.parametrize("seed", range(4))
def test_leader_that_stops_in_order_hands_over(seed: int) -> None:
    """Far sooner than an election time-out, so a rolling restart is hardly felt."""

    async def work(cluster: Cluster) -> None:
        await cluster.start(1, 2, 3)
        old = await cluster.leader()
        await live_broker(old)
        await cluster.converge()
        began = cluster.loop.time()
        await cluster.stop(number_of(old))
        new = await cluster.leader()
        assert cluster.loop.time() - began < ELECTION_MS / 1000 / 2
        await create(new, "after")

    with_cluster(work, seed=seed)


@pytest.mark.parametrize("seed", range(4))
def test_leader_that_stops_hands_over_to_the_first_of_equals(seed: int) -> None:
    """Not to whom the order of a set says, which is another one in each process (seed 3 of the simulated clusters)."""

    async def work(cluster: Cluster) -> None:
        await cluster.start(1, 2, 3, 4, 5)
        old = await cluster.leader()
        await cluster.converge()
        await cluster.stop(number_of(old))
        new = await cluster.leader()
        assert number_of(new) == min({1, 2, 3, 4, 5} - {number_of(old)})

    with_cluster(work, voters=(1, 2, 3, 4, 5), seed=seed)


@pytest.mark.parametrize("seed", range(3))
def test_leadership_goes_to_the_voter_that_is_asked_for(seed: int) -> None:
    """At once; to whom it cannot go, it does not."""

    async def work(cluster: Cluster) -> None:
        await cluster.start(1, 2, 3, 4)
        old = await cluster.leader()
        await live_broker(old)
        await cluster.converge()
        target = number_of(old) % 3 + 1
        await old.transfer_leadership(cluster.machines[number_of(old)].key)
        assert old.is_leader, "it leads already"
        with pytest.raises(VoterNotFoundError):
            await old.transfer_leadership(cluster.machines[4].key)
        await old.transfer_leadership(cluster.machines[target].key)
        assert old.leader_id == target
        new = await cluster.leader()
        assert number_of(new) == target
        with pytest.raises(NotControllerError):
            await old.transfer_leadership(cluster.machines[target].key)
        gone = number_of(new) % 3 + 1
        cluster.kill(gone)
        with pytest.raises(RequestTimedOutError, match="did not take over"):
            await new.transfer_leadership(cluster.machines[gone].key)
        assert new.is_leader
        await asyncio.sleep(1)
        await create(new, "after")

    with_cluster(work, seed=seed)


def test_description_says_how_far_everybody_is() -> None:
    """KIP-836: ends, lag, last fetch and last time caught up; only the leader knows them."""

    async def work(cluster: Cluster) -> None:
        await cluster.start(1, 2, 3, 4)
        leader = await cluster.leader()
        await live_broker(leader)
        await cluster.converge()
        await asyncio.sleep(1)
        behind = number_of(leader) % 3 + 1
        cluster.cut_off(behind)
        for name in "abc":
            await create(leader, name)
        await asyncio.sleep(1)
        description = leader.describe()
        assert description.is_of_leader
        assert (description.leader_epoch, description.high_watermark) == (leader.term, leader.high_watermark)
        voters = {state.key.node_id: state for state in description.voters}
        assert {number: state.endpoint for number, state in voters.items()} == {n: endpoint_of(n) for n in (1, 2, 3)}
        (observer,) = description.observers
        now_ms = cluster.loop.time() * 1000
        for number, state in {**voters, 4: observer}.items():
            age_ms = leader._clock.wall_ms() - state.last_fetch_timestamp_ms
            if number == behind:
                assert state.lag >= 3
                assert age_ms > 900
                assert 0 < state.last_caught_up_timestamp_ms <= state.last_fetch_timestamp_ms
            else:
                assert (state.lag, state.log_end_offset) == (0, leader.log_end_offset)
                assert age_ms < 500
                assert state.last_caught_up_timestamp_ms == state.last_fetch_timestamp_ms
        assert now_ms > 0
        other = cluster.node(next(n for n in (1, 2, 3) if n not in (behind, number_of(leader)))).describe()
        assert not other.is_of_leader
        assert other.leader_id == number_of(leader)
        assert not other.observers
        assert {state.lag for state in other.voters} == {-1}

    with_cluster(work)
