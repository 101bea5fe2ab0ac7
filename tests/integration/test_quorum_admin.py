"""The metadata quorum of three real nodes, from the SDK and from kraftctl: described, changed, and without a majority."""

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from kraftlog import Admin, AsyncAdmin, TopicPartition
from kraftlog.proto.errors import (
    BrokerIdNotRegisteredError,
    DuplicateVoterError,
    InvalidRequestError,
    KraftlogError,
    UnknownTopicOrPartitionError,
    VoterNotFoundError,
)
from kraftlog.sdk.types import ClusterDescription, ConfigEntry, QuorumDescription, TopicDescription
from kraftlog.testing import Cluster, cluster
from tests.integration.kraftctl import Cli

pytestmark = pytest.mark.processes


@pytest.fixture(scope="module")
def nodes() -> Iterator[Cluster]:
    with cluster(3) as running:
        yield running


@pytest.fixture
def admin(nodes: Cluster) -> Iterator[Admin]:
    with Admin(bootstrap_servers=nodes.bootstrap_servers) as made:
        yield made


@pytest.fixture
def cli(nodes: Cluster, tmp_path: Path) -> Cli:
    return Cli(tmp_path / "home")


def voters(admin: Admin) -> list[int]:
    return [voter.node_id for voter in admin.describe_metadata_quorum().voters]


def test_the_quorum_is_described_by_its_leader(nodes: Cluster, admin: Admin) -> None:
    quorum = admin.describe_metadata_quorum()
    assert [voter.node_id for voter in quorum.voters] == [1, 2, 3]
    assert quorum.described_by == quorum.leader_id
    assert not quorum.stale
    assert quorum.observers == ()
    assert [voter.address for voter in quorum.voters] == [node.address for node in nodes.nodes]
    leader = quorum.voters[quorum.leader_id - 1]
    assert (leader.lag, leader.last_fetch_timestamp_ms) == (0, leader.last_caught_up_timestamp_ms)
    assert all(len(voter.directory_id) == 22 for voter in quorum.voters)


def test_voters_come_and_go_while_topics_are_made(admin: Admin) -> None:
    admin.remove_voter(3)
    assert voters(admin) == [1, 2]
    assert [observer.node_id for observer in admin.describe_metadata_quorum().observers] == [3]
    admin.create_topics(["two-voters"])
    with pytest.raises(VoterNotFoundError, match="the voters are 1, 2"):
        admin.remove_voter(3)
    (observer,) = admin.describe_metadata_quorum().observers
    with pytest.raises(InvalidRequestError, match="no directory id"):
        admin.add_voter(3, "short")
    admin.add_voter(3, observer.directory_id)
    with pytest.raises(DuplicateVoterError):
        admin.add_voter(3)
    assert voters(admin) == [1, 2, 3]
    assert "two-voters" in admin.list_topics()


def test_leadership_is_handed_over(admin: Admin) -> None:
    old = admin.describe_metadata_quorum().leader_id
    new = old % 3 + 1
    assert admin.transfer_quorum_leadership(new) == new
    assert admin.describe_metadata_quorum().leader_id == new
    assert admin.describe_cluster().controller_id == new


def test_each_broker_tells_its_own_configuration(admin: Admin) -> None:
    for node in (1, 2, 3):
        own = {entry.name: entry.value for entry in admin.describe_configs(broker=node)}
        assert own["node.id"] == str(node)
    with pytest.raises(BrokerIdNotRegisteredError):
        admin.describe_configs(broker=9)


def test_leaders_are_elected_and_a_living_broker_is_not_forgotten(admin: Admin) -> None:
    admin.create_topics(["elected"])
    assert admin.elect_leaders([TopicPartition("elected", 0)]) == {}, "its preferred leader leads"
    assert admin.elect_leaders([]) == admin.elect_leaders() == {}
    with pytest.raises(UnknownTopicOrPartitionError):
        admin.elect_leaders([TopicPartition("elected", 7)])
    with pytest.raises(KraftlogError):
        admin.unregister_broker(9)
    with pytest.raises(KraftlogError):
        admin.update_features({"there.is.no.such.feature": 1})
    with pytest.raises(InvalidRequestError, match="safe_downgrade"):
        admin.update_features({"metadata.version": 1}, upgrade_type="sideways")


def test_the_verbs_of_kraftctl(nodes: Cluster, cli: Cli) -> None:
    at = ("-b", nodes.bootstrap_servers)
    assert cli.ok("quorum", "remove-voter", "2", *at) == "node 2 is no voter\n"
    described = cli.json("quorum", "describe", *at)
    assert [each["node_id"] for each in described["voters"]] == [1, 3]
    [observer] = described["observers"]
    cli.fails(4, "is not a voter", "quorum", "transfer", "2", *at)
    assert cli.json("quorum", "add-voter", "2", "--directory-id", observer["directory_id"], *at)["voter"]
    cli.fails(5, "is a voter already", "quorum", "add-voter", "2", *at)
    cli.fails(4, "does not follow the metadata quorum", "quorum", "add-voter", "9", *at)
    cli.fails(2, "is not a valid integer", "quorum", "add-voter", "x", *at)
    assert cli.ok("quorum", "transfer", "2", *at) == "node 2 leads the quorum\n"
    summary, columns, *rows = cli.ok("quorum", "describe", *at).splitlines()
    assert summary.startswith("quorum: leader 2, epoch ")
    assert columns.split()[:2] == ["node", "status"]
    assert [row.split()[:2] for row in rows] == [["1", "voter"], ["2", "leader"], ["3", "voter"]]
    assert observer["directory_id"] in rows[1]


async def described_without_a_leader(
    address: str,
) -> tuple[QuorumDescription, ClusterDescription, list[TopicDescription], list[ConfigEntry]]:
    async with AsyncAdmin(bootstrap_servers=address) as admin:
        return await asyncio.gather(
            admin.describe_metadata_quorum(allow_stale=True),
            admin.describe_cluster(allow_stale=True),
            admin.describe_topics(allow_stale=True),
            admin.describe_configs(topic="before", allow_stale=True),
        )


def test_without_a_majority_what_is_told_says_that_it_may_be_old(tmp_path: Path, cli: Cli) -> None:
    with cluster(3, directory=tmp_path) as made, Admin(bootstrap_servers=made.bootstrap_servers) as admin:
        admin.create_topics(["before"])
        left, *gone = sorted(made.nodes, key=lambda node: node.node_id != admin.describe_metadata_quorum().leader_id)
        for node in gone:
            node.kill9()
        quorum, cluster_, topics, configs = asyncio.run(described_without_a_leader(left.address))
        assert (quorum.stale, quorum.described_by) == (True, left.node_id)
        assert [voter.node_id for voter in quorum.voters] == [1, 2, 3]
        assert [(topic.name, topic.stale) for topic in topics] == [("before", True)]
        assert cluster_.stale
        assert all(entry.stale for entry in configs)
        at = ("-b", left.address)
        told = cli.run("quorum", "describe", "--format", "json", *at)
        assert told.returncode == 0
        assert json.loads(told.stdout)["stale"]
        assert f"this is what node {left.node_id} knows" in told.stderr
