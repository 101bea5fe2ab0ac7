"""Which segment a lookup by time goes to, whatever order the timestamps have."""

from random import Random

import pytest

from kraftlog.logstore import Log, LogConfig
from kraftlog.logstore.segment import Segment
from tests.unit.logstore.builders import NOW_MS, batch, create_log

LATEST = 400


def log_of(stamps: list[int]) -> Log:
    """One record a batch, two batches a segment."""
    size = len(batch("x"))
    _, log = create_log(LogConfig(segment_bytes=2 * size))
    for stamp in stamps:
        log.append_as_leader(batch("x", timestamps=[NOW_MS + stamp]), leader_epoch=0, now_ms=NOW_MS)
    return log


def expected(stamps: list[int], start: int, wanted: int) -> int | None:
    return next((offset for offset, stamp in enumerate(stamps) if offset >= start and stamp >= wanted), None)


def found(log: Log, wanted: int) -> int | None:
    position = log.offset_for_time(NOW_MS + wanted)
    return None if position is None else position[0]


@pytest.mark.parametrize("seed", range(6))
def test_the_first_record_that_is_late_enough_is_found(seed: int) -> None:
    """Ties, gaps and records stamped far ahead; before and after records are deleted and more are appended."""
    randomness = Random(seed)
    stamps = [randomness.randrange(LATEST) if randomness.random() < 0.3 else 5 * n for n in range(60)]
    log = log_of(stamps[:40])
    for start in (0, 7, 20):
        log.advance_log_start_offset(start)
        for wanted in range(-1, LATEST + 1, 3):
            assert found(log, wanted) == expected(stamps[:40], start, wanted), f"seed {seed}, from {start}: {wanted}"
    for stamp in stamps[40:]:
        log.append_as_leader(batch("x", timestamps=[NOW_MS + stamp]), leader_epoch=0, now_ms=NOW_MS)
    log.truncate_to(55)
    for wanted in range(-1, LATEST + 1, 3):
        assert found(log, wanted) == expected(stamps[:55], 20, wanted), f"seed {seed}: {wanted}"


def test_a_lookup_loads_no_index_behind_what_it_finds() -> None:
    log = log_of([10 * n for n in range(200)])
    log.flush()
    for segment in log._segments[:-1]:
        segment.let_go()
    assert found(log, 45) == 5
    assert [segment._indexes is not None for segment in log._segments[:-1]] == [True] * 3 + [False] * 96
    assert found(log, 1_555) == 156
    assert found(log, 45) == 5


def test_a_lookup_looks_into_one_segment_however_many_there_are(monkeypatch: pytest.MonkeyPatch) -> None:
    log = log_of([10 * n for n in range(200)])
    assert log.segment_count == 100
    looked: list[int] = []
    original = Segment.offset_for_time

    def look(self: Segment, timestamp: int, start_offset: int) -> tuple[int, int, int] | None:
        looked.append(self.base_offset)
        return original(self, timestamp, start_offset)

    monkeypatch.setattr(Segment, "offset_for_time", look)
    assert found(log, 1_555) == 156
    assert found(log, 1_990) == 199
    assert found(log, 1_991) is None
    assert looked == [156, 198, 198]
