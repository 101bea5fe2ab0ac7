"""Addresses of controllers: what is known of them, and in which order they are tried."""

import pytest

from kraftlog.kraft.endpoints import MAX_REPLICAS, AddressBook, Endpoint
from kraftlog.kraft.raft import ReplicaKey

ONE, TWO = ReplicaKey(1), ReplicaKey(2)
OLD, NEW = Endpoint("old", 9093), Endpoint("new", 9093)


def test_address_that_a_replica_gives_is_tried_before_the_recorded_one() -> None:
    """A node that has moved says so when it connects; the voters record follows only with the next change."""
    book = AddressBook()
    assert (book.candidates(ONE), book.endpoint(ONE)) == ((), None)
    book.record({ONE: OLD})
    assert book.candidates(ONE) == (OLD,)
    book.tell(ONE, NEW)
    assert book.candidates(ONE) == (NEW, OLD)
    book.record({TWO: OLD})
    assert book.candidates(ONE) == (NEW,)
    assert book.known([ONE, TWO, ReplicaKey(3)]) == {ONE: NEW, TWO: OLD}


def test_what_peers_say_is_bounded() -> None:
    """Whoever connects under ever new names does not fill the memory."""
    book = AddressBook()
    for number in range(MAX_REPLICAS + 5):
        book.tell(ReplicaKey(number), NEW)
    assert not book.candidates(ReplicaKey(4))
    assert book.candidates(ReplicaKey(5))


@pytest.mark.parametrize(
    "text", ["", "host", "host:", ":9093", "host:0", "host:65536", "host:-1", "host:x", "host:9\u00b2"]
)
def test_what_is_no_address_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="HOST:PORT"):
        Endpoint.parse(text)


def test_addresses_are_written_as_they_are_read() -> None:
    assert [str(Endpoint.parse(text)) for text in ("host:9093", "[::1]:9093")] == ["host:9093", "[::1]:9093"]
