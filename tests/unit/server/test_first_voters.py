"""Who votes first, from the options of `storage format`."""

import pytest

from kraftlog.kraft.endpoints import Endpoint
from kraftlog.kraft.raft import ReplicaKey
from kraftlog.proto.errors import InvalidConfigError
from kraftlog.proto.uuids import uuid_to_text
from kraftlog.server.config import NodeConfig
from kraftlog.server.first_voters import (
    FirstVoters,
    choose_first_voters,
    format_initial_controllers,
    parse_initial_controllers,
)

FRESH = uuid_to_text(bytes([9]) * 16)
A, B = bytes([1]) * 16, bytes([2]) * 16
TWO = f"1@h1:9093:{uuid_to_text(A)}, 2@[::1]:9094:{uuid_to_text(B)}"
VOTERS = {ReplicaKey(1, A): Endpoint("h1", 9093), ReplicaKey(2, B): Endpoint("[::1]", 9094)}
OTHERS = {"controller.quorum.bootstrap.servers": "h1:9093,h2:9093"}


def config(**more: str) -> NodeConfig:
    return NodeConfig.from_properties({"node.id": "1", **{key.replace("_", "."): text for key, text in more.items()}})


def test_initial_controllers_come_back_as_written() -> None:
    assert parse_initial_controllers(TWO) == VOTERS
    assert parse_initial_controllers(format_initial_controllers(VOTERS)) == VOTERS


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "names nobody"),
        ("h1:9093", "is not NODE_ID@HOST:PORT:DIRECTORY_ID"),
        (f"x@h1:9093:{uuid_to_text(A)}", "is not NODE_ID@"),
        (f"{2**31}@h1:9093:{uuid_to_text(A)}", "is not NODE_ID@"),
        ("1@h1:9093", "is not HOST:PORT"),
        (f"1@h1:{uuid_to_text(A)}", "is not HOST:PORT"),
        (f"1@h1:0:{uuid_to_text(A)}", "is not HOST:PORT"),
        ("1@h1:9093:short", "'short' is no directory id"),
        (f"1@h1:9093:{uuid_to_text(A)}==", "is no directory id"),
        (f"1@h1:9093:{uuid_to_text(bytes(16))}", "is no directory id"),
        (f"1@h1:9093:{uuid_to_text(A)},1@h2:9093:{uuid_to_text(B)}", "has node 1 twice"),
        (f"1@h1:9093:{uuid_to_text(A)},2@h2:9093:{uuid_to_text(A)}", "an id of its own"),
        (f"1@h1:9093:{uuid_to_text(A)},2@h1:9093:{uuid_to_text(B)}", "has h1:9093 twice"),
    ],
)
def test_bad_initial_controllers_are_refused(text: str, said: str) -> None:
    with pytest.raises(InvalidConfigError) as caught:
        parse_initial_controllers(text)
    assert said in str(caught.value)
    assert "--initial-controllers" in str(caught.value)


def test_a_node_finds_its_own_directory_id_among_the_initial_controllers() -> None:
    chosen = choose_first_voters(config(), fresh_directory_id=FRESH, initial_controllers=TWO)
    assert chosen == FirstVoters(uuid_to_text(A), VOTERS)


def test_a_controller_alone_is_the_only_voter() -> None:
    """Also when it names itself in its bootstrap servers, and says that it is alone."""
    alone = FirstVoters(FRESH, {ReplicaKey(1, bytes([9]) * 16): None})
    assert choose_first_voters(config(), fresh_directory_id=FRESH) == alone
    other = NodeConfig.from_properties({"node.id": "1", **OTHERS})
    assert choose_first_voters(other, fresh_directory_id=FRESH, standalone=True) == alone


def test_who_joins_has_no_voters() -> None:
    nobody = FirstVoters(FRESH, {})
    broker = NodeConfig.from_properties({"process.roles": "broker", **OTHERS})
    assert choose_first_voters(broker, fresh_directory_id=FRESH) == nobody
    assert choose_first_voters(broker, fresh_directory_id=FRESH, initial_controllers=TWO) == nobody
    assert choose_first_voters(config(), fresh_directory_id=FRESH, no_initial_controllers=True) == nobody


def test_a_controller_among_others_has_to_say_what_it_is() -> None:
    other = NodeConfig.from_properties({"node.id": "3", **OTHERS})
    with pytest.raises(InvalidConfigError) as caught:
        choose_first_voters(other, fresh_directory_id=FRESH)
    assert all(word in str(caught.value) for word in ("--standalone", "--initial-controllers", "--no-initial"))
    with pytest.raises(InvalidConfigError, match="not in --initial-controllers"):
        choose_first_voters(other, fresh_directory_id=FRESH, initial_controllers=TWO)
    with pytest.raises(InvalidConfigError, match="exclude each other"):
        choose_first_voters(other, fresh_directory_id=FRESH, standalone=True, initial_controllers=TWO)
    broker = NodeConfig.from_properties({"process.roles": "broker", **OTHERS})
    with pytest.raises(InvalidConfigError, match="is no controller"):
        choose_first_voters(broker, fresh_directory_id=FRESH, standalone=True)
