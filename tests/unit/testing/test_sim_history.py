"""Each rule of the history checker: what it must convict, and that a sound history passes."""

from collections.abc import Callable

import pytest

from kraftlog.testing.sim.history import History

A = ("orders", 0)
B = ("orders", 1)


def _sound() -> History:
    history = History()
    for number in range(4):
        history.on_send("p1", A, b"v%d" % number)
    for number in range(3):
        history.on_ack(b"v%d" % number, A, number)
    history.on_failure(b"v3", "timed out")
    history.on_position("r1", A, 0)
    for number in range(4):
        history.on_read("r1", A, number, b"v%d" % number)
    history.on_high_watermark(A, 4, 0)
    history.on_committed("g", A, 3)
    return history


def test_a_sound_history_passes() -> None:
    """A failed send may be stored all the same, once."""
    history = _sound()
    history.check_log(A, [(number, b"v%d" % number) for number in range(4)])
    history.on_committed_read("g", A, 3, history.committed_floor("g", A))
    assert history.violation is None
    assert history.unanswered() == []
    assert (history.acked_count, history.failed_count, history.read_count) == (3, 1, 4)


def _compacted() -> History:
    """Keys a, b, a, b at 0 to 3; a reader was given 0 and 3."""
    history = History(is_compacted=True)
    for number in range(4):
        history.on_send("p1", A, b"v%d" % number, b"ab"[number % 2 : number % 2 + 1])
        history.on_ack(b"v%d" % number, A, number)
    history.on_position("r1", A, 0)
    history.on_read("r1", A, 0, b"v0")
    history.on_read("r1", A, 3, b"v3")
    history.on_group_read("g", A, 0)
    return history


def test_superseded_records_of_a_compacted_topic_may_vanish() -> None:
    history = _compacted()
    history.partition(A).passed.clear()
    history.on_position("r1", A, 0)
    history.on_read("r1", A, 2, b"v2")
    history.on_read("r1", A, 3, b"v3")
    history.check_log(A, [(2, b"v2"), (3, b"v3")])
    assert (history.violation, history.compacted_count) == (None, 2)


@pytest.mark.parametrize(
    ("stored", "rule"), [([3], "I-01"), ([2], "I-01"), ([0, 1, 3], "I-01"), ([2, 3], "I-05"), ([0, 1, 2, 3], "I-05")]
)
def test_the_last_value_of_a_key_stays_and_no_reader_passes_over_what_is_there(stored: list[int], rule: str) -> None:
    history = _compacted()
    history.check_log(A, [(number, b"v%d" % number) for number in stored])
    assert history.violation is not None
    assert history.violation.rule == rule


def test_a_group_may_not_pass_over_what_is_there() -> None:
    history = _compacted()
    history.partition(A).passed.clear()
    history.on_group_read("g", A, 3)
    history.check_log(A, [(2, b"v2"), (3, b"v3")])
    assert history.violation is not None
    assert "group g skipped from 1 to 3" in history.violation.detail


@pytest.mark.parametrize(
    ("rule", "event"),
    [
        ("I-01", lambda h: h.check_log(A, [(0, b"v0"), (1, b"v1")])),
        ("I-01", lambda h: h.on_read("r2", A, 9, b"nobody sent this")),
        ("I-01", lambda h: (h.on_send("p1", B, b"w"), h.on_ack(b"w", A, 9))),
        ("I-02", lambda h: (h.on_send("p1", A, b"w"), h.on_ack(b"w", A, 2))),
        ("I-02", lambda h: (h.on_send("p1", A, b"w"), h.on_read("r2", A, 1, b"w"))),
        ("I-03", lambda h: h.on_read("r2", A, 7, b"v1")),
        ("I-03", lambda h: h.check_log(A, [*((n, b"v%d" % n) for n in range(4)), (4, b"v2")])),
        ("I-03", lambda h: h.on_failure(b"v1", "after its acknowledgment")),
        ("I-05", lambda h: (h.on_send("p1", A, b"w"), h.on_read("r1", A, 5, b"w"))),
        ("I-05", lambda h: h.on_read("r1", A, 2, b"v2")),
        ("I-07", lambda h: h.on_high_watermark(A, 3, 0)),
        ("I-07", lambda h: (h.on_high_watermark(A, 5, 2), h.on_high_watermark(A, 5, 1))),
        ("I-07", lambda h: h.on_committed_read("g", A, 2, h.committed_floor("g", A))),
    ],
)
def test_a_broken_rule_is_found(rule: str, event: Callable[[History], object]) -> None:
    """One event too many, and the rule that it breaks is named."""
    history = _sound()
    event(history)
    assert history.violation is not None
    assert history.violation.rule == rule


def test_stored_out_of_sending_order_is_found() -> None:
    """I-04: offsets follow the order of sends of one producer to one partition."""
    history = History()
    for value in (b"first", b"second"):
        history.on_send("p1", A, value)
    history.check_log(A, [(0, b"second"), (1, b"first")])
    assert history.violation is not None
    assert history.violation.rule == "I-04"


def test_the_first_violation_is_kept() -> None:
    """Later ones are its consequences."""
    history = _sound()
    history.violate("I-01", "the cause")
    history.violate("I-02", "a consequence")
    assert str(history.violation) == "I-01: the cause"


def test_a_new_position_resets_the_reader() -> None:
    """After an assignment or a seek the next record is where the reader was told to begin."""
    history = _sound()
    history.on_position("r1", A, 1)
    history.on_read("r1", A, 1, b"v1")
    history.forget_position("r1", A)
    history.on_read("r1", A, 3, b"v3")
    assert history.violation is None


def test_unanswered_sends_are_listed() -> None:
    """Liveness: after healing there are none."""
    history = _sound()
    history.on_send("p1", B, b"late")
    assert [record.value for record in history.unanswered()] == [b"late"]


@pytest.mark.parametrize(
    ("is_replicated", "skipped_is_last"), [(False, False), (False, True), (True, False), (True, True)]
)
def test_a_reader_may_pass_over_what_another_replica_has_compacted(is_replicated: bool, skipped_is_last: bool) -> None:
    """I-05: the log that is read back is one replica's, the reader had another's (seed 39)."""
    history = History(is_compacted=True, is_replicated=is_replicated)
    keys = (b"a", b"b", b"b" if not skipped_is_last else b"c")
    values = [b"first", b"second", b"third"]
    for offset, (key, value) in enumerate(zip(keys, values, strict=True)):
        history.on_send("p", A, value, key)
        history.on_ack(value, A, offset)
    history.on_position("r", A, 0)
    history.on_read("r", A, 0, b"first")
    history.on_read("r", A, 2, b"third")
    history.check_log(A, list(enumerate(values)))
    assert (history.violation is not None) == (not is_replicated or skipped_is_last)


def test_a_reader_may_not_pass_over_what_nothing_had_superseded_by_then() -> None:
    """I-05: a later record of the key takes the earlier one away, but not before it is sent."""
    for is_late in (False, True):
        history = History(is_compacted=True, is_replicated=True)
        sends = [(b"first", b"a"), (b"second", b"b"), (b"third", b"c"), (b"fourth", b"b")]
        for value, key in sends[: 3 if is_late else 4]:
            history.on_send("p", A, value, key)
        history.on_position("r", A, 0)
        history.on_read("r", A, 0, b"first")
        history.on_read("r", A, 2, b"third")
        if is_late:
            history.on_send("p", A, *sends[3])
        for offset, (value, _) in enumerate(sends):
            history.on_ack(value, A, offset)
        history.check_log(A, [(offset, value) for offset, (value, _) in enumerate(sends)])
        assert (history.violation is not None) == is_late


def _shortened() -> History:
    """Four records, sent at 0, 10, 20 and 30 s, of which two are deleted on request."""
    history = History(is_replicated=True)
    for number in range(4):
        history.on_send("p1", A, b"v%d" % number, sent_ms=number * 10_000)
        history.on_ack(b"v%d" % number, A, number)
    history.on_delete_asked(A, 2)
    history.on_log_start("node 1", A, 2, size_bytes=100, now_ms=40_000)
    history.on_deleted(A, 2)
    return history


def test_deleted_records_may_be_missing_and_readers_are_sent_on() -> None:
    history = _shortened()
    history.on_position("r1", A, 0)
    history.on_read("r1", A, 2, b"v2")
    history.on_group_read("g", A, 2)
    history.check_log(A, [(2, b"v2"), (3, b"v3")])
    assert (history.violation, history.deleted_count, history.starts_moved) == (None, 2, 1)


@pytest.mark.parametrize(
    ("retention_ms", "retention_bytes", "size_bytes", "now_ms", "is_sound"),
    [
        (None, None, 100, 90_000, False),
        (15_000, None, 100, 35_000, True),
        (15_000, None, 100, 34_999, False),
        (None, 100, 100, 0, True),
        (None, 101, 100, 0, False),
        (15_000, 101, 100, 35_000, True),
    ],
)
def test_a_log_starts_no_later_than_retention_lets_it(
    retention_ms: int | None, retention_bytes: int | None, size_bytes: int, now_ms: int, is_sound: bool
) -> None:
    """I-01: by the age of each record that goes, or by the bytes that are left."""
    history = _shortened()
    history.on_retention_asked(retention_ms=retention_ms, retention_bytes=retention_bytes)
    history.on_log_start("node 2", A, 3, size_bytes=size_bytes, now_ms=now_ms)
    assert (history.violation is None) == is_sound


@pytest.mark.parametrize(
    ("rule", "event"),
    [
        ("I-07", lambda h: h.check_log(A, [(1, b"v1"), (2, b"v2"), (3, b"v3")])),
        ("I-01", lambda h: h.check_log(A, [(3, b"v3")])),
        ("I-05", lambda h: (h.on_position("r1", A, 0), h.on_read("r1", A, 3, b"v3"))),
        ("I-05", lambda h: h.on_group_read("g", A, 3)),
    ],
)
def test_deletion_excuses_no_more_than_was_deleted(rule: str, event: Callable[[History], object]) -> None:
    """What is deleted does not come back, and what is not deleted is there, for every reader."""
    history = _shortened()
    event(history)
    assert history.violation is not None
    assert history.violation.rule == rule
