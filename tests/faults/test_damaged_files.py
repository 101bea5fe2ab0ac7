"""Files that were cut, flipped or overwritten behind the log's back: what is served is right, or an error says what is
wrong. Nothing hangs, and no error is of the kind that only a bug raises."""

import logging
import random
from collections.abc import Callable, Iterator

import pytest

from kraftlog.logstore import Log
from kraftlog.proto.errors import CorruptRecordError, KraftlogError
from kraftlog.testing.filesystem import SimFileSystem
from tests.unit.logstore.builders import NOW_MS, SMALL, append, batch, create_log, idempotent, open_log_dir, values_of

COUNT = 23
BATCH_BYTES = len(batch("00"))
MARKER = "/data/.kafka_cleanshutdown"


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    logging.disable(logging.ERROR)
    yield
    logging.disable(logging.NOTSET)


def stopped(clean: bool) -> SimFileSystem:
    """A disk with five segments, all flushed and recorded."""
    fs = SimFileSystem()
    log_dir, log = create_log(SMALL, fs)
    for number in range(COUNT):
        append(log, f"{number:02d}", leader_epoch=number // 4)
    log.flush()
    log_dir.checkpoint()
    if clean:
        log_dir.close()
    fs.kill()
    return fs


def contents(fs: SimFileSystem) -> dict[str, bytes]:
    return {path: fs.contents(path) for path in (f"/data/t-0/{name}" for name in fs.listdir("/data/t-0"))}


def restore(fs: SimFileSystem, files: dict[str, bytes], clean: bool) -> None:
    fs.kill()
    for name in set(fs.listdir("/data/t-0")) - {path.rpartition("/")[2] for path in files}:
        fs.unlink(f"/data/t-0/{name}")
    for path, content in files.items():
        fs.put(path, content)
    if clean:
        fs.put(MARKER, b"x")


def ask_everything(log: Log, where: str) -> None:
    """Each question is answered rightly, or by an error that has a code."""
    asked: list[Callable[[], object]] = [
        lambda: values_of(log),
        *(lambda offset=offset: log.read(offset, 1, end_offset=COUNT) for offset in range(0, COUNT, 3)),
        lambda: [log.offset_for_time(NOW_MS + after) for after in range(3)],
        log.max_timestamp,
        lambda: log.truncate_to(COUNT - 5),
    ]
    for ask in asked:
        try:
            ask()
        except KraftlogError:
            pass
        except Exception as e:
            e.add_note(where)
            raise


def harm_randomly(seed: int, count: int, clean: bool, harm: Callable[[random.Random, bytes], bytes]) -> None:
    print("seed", seed)
    rng = random.Random(seed)
    fs = stopped(clean)
    files = contents(fs)
    for number in range(count):
        path = rng.choice(sorted(files))
        restore(fs, files, clean)
        fs.put(path, harm(rng, files[path]))
        where = f"seed {seed}, number {number}, {path}"
        log = open_log_dir(fs, SMALL).logs["t", 0]
        ask_everything(log, where)


def flip_a_bit(rng: random.Random, content: bytes) -> bytes:
    harmed = bytearray(content)
    if harmed:
        used = len(content.rstrip(b"\0")) or 1
        harmed[rng.randrange(used)] ^= 1 << rng.randrange(8)
    return bytes(harmed)


def overwrite_some_bytes(rng: random.Random, content: bytes) -> bytes:
    """Zeros, ones, noise, or a piece from elsewhere in the file."""
    at, size = rng.randrange(len(content) + 1), rng.randrange(1, 600)
    start = rng.randrange(len(content) + 1)
    new = (bytes(size), b"\xff" * size, rng.randbytes(size), content[start : start + size])[rng.randrange(4)]
    return content[:at] + new[: len(content) - at] + content[at + len(new) :]


def cut_anywhere(rng: random.Random, content: bytes) -> bytes:
    """At any byte, or at a sector with zeros after it; or a middle part is missing."""
    at = rng.randrange(len(content) + 1)
    match rng.randrange(3):
        case 0:
            return content[:at]
        case 1:
            at = at // 512 * 512
            return content[:at] + bytes(len(content) - at)
        case _:
            return content[:at] + content[at + rng.randrange(1, 100) :]


HARMS = [flip_a_bit, overwrite_some_bytes, cut_anywhere]


@pytest.mark.slow
@pytest.mark.parametrize("clean", [True, False], ids=["clean", "unclean"])
@pytest.mark.parametrize("harm", HARMS)
def test_every_question_has_an_answer_or_an_error(harm: Callable[[random.Random, bytes], bytes], clean: bool) -> None:
    """After a clean stop no segment is checked when it is loaded: damage is met by whoever reads."""
    harm_randomly(7, 150, clean, harm)


@pytest.mark.deep
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("clean", [True, False], ids=["clean", "unclean"])
@pytest.mark.parametrize("harm", HARMS)
def test_every_question_has_an_answer_or_an_error_at_length(
    harm: Callable[[random.Random, bytes], bytes], clean: bool
) -> None:
    harm_randomly(8, 10_000, clean, harm)


@pytest.mark.parametrize("active", [True, False])
def test_r03_one_flipped_bit_is_found(active: bool) -> None:
    """nats-server #7549: it lost acknowledged records, unnoticed. Here the CRC finds it, and what is whole is served.

    The active segment is checked at an unclean start; a closed one by whoever reads it: nothing passes for a record.
    """
    fs = stopped(clean=False)
    base = 20 if active else 5
    path = f"/data/t-0/{base:020d}.log"
    fs.flip(path, BATCH_BYTES + 68)
    log = open_log_dir(fs, SMALL).logs["t", 0]
    assert (log.damage is not None) == active
    if active:
        with pytest.raises(CorruptRecordError, match="kraftctl log repair"):
            append(log, "no")
    else:
        with pytest.raises(CorruptRecordError):
            values_of(log, base + 1)
    whole = [offset for offset in range(log.log_end_offset) if offset != base + 1]
    for offset in whole:
        result = log.read(offset, 1, end_offset=offset + 1)
        assert b"%02d" % offset in result.records


def test_a_batch_length_that_makes_no_sense_is_an_error_not_an_endless_walk() -> None:
    """-12 would lead to the very same batch again; a large one past the end, to records that are skipped."""
    for length in (-12, -13, 0, 48, 1 << 20, -(1 << 31)):
        fs = stopped(clean=True)
        path = "/data/t-0/00000000000000000005.log"
        file = fs.open(path)
        file.pwritev([length.to_bytes(4, "big", signed=True)], BATCH_BYTES + 8)
        for suffix in ("index", "timeindex"):
            fs.put(path.replace("log", suffix), b"")
        log = open_log_dir(fs, SMALL).logs["t", 0]
        with pytest.raises(CorruptRecordError, match="no valid batch at position"):
            log.read(8, 1, end_offset=COUNT)
        assert log.read(10, 1, end_offset=COUNT).next_offset == 11


def test_damage_in_a_segment_that_was_synced_long_ago_does_not_keep_the_node_from_starting() -> None:
    """Recovery reads it only to replay producers; then it checks it all, and names the place."""
    fs = stopped(clean=False)
    for name in fs.listdir("/data/t-0"):
        if name.endswith(".snapshot"):
            fs.unlink(f"/data/t-0/{name}")
    path = "/data/t-0/00000000000000000005.log"
    fs.open(path).pwritev([bytes(4)], 2 * BATCH_BYTES + 8)
    for _ in range(2):
        log = open_log_dir(fs, SMALL).logs["t", 0]
        fs.kill()
        assert f"{path}: no valid batch at position {2 * BATCH_BYTES} (offset 7)" in str(log.damage)
    assert log.log_end_offset == 7


def flip_snapshot_bits(bits_per_byte: int) -> None:
    fs = SimFileSystem()
    log_dir, log = create_log(SMALL, fs)
    for sequence in range(12):
        log.append_as_leader(idempotent(1, sequence), leader_epoch=0, now_ms=NOW_MS)
    log_dir.close()
    files = contents(fs)
    for path in (path for path in files if path.endswith(".snapshot")):
        for position in range(len(files[path])):
            for number in range(bits_per_byte):
                restore(fs, files, clean=True)
                bit = (position + number) % 8
                fs.flip(path, position, 1 << bit)
                log = open_log_dir(fs, SMALL).logs["t", 0]
                assert log.producers.entries[1].last_sequence == 11, f"{path}, byte {position}, bit {bit}"


@pytest.mark.slow
def test_a_rebuilt_snapshot_remembers_what_the_damaged_one_did() -> None:
    flip_snapshot_bits(bits_per_byte=1)


@pytest.mark.deep
def test_a_rebuilt_snapshot_remembers_what_the_damaged_one_did_at_length() -> None:
    flip_snapshot_bits(bits_per_byte=8)


def test_an_offset_that_goes_back_is_an_error_not_a_reader_in_circles() -> None:
    """No CRC covers the base offset: the next offset of the read would lie before the one that was asked for."""
    fs = stopped(clean=True)
    path = "/data/t-0/00000000000000000005.log"
    assert fs.size(path) == 5 * BATCH_BYTES
    fs.open(path).pwritev([(2).to_bytes(8, "big")], 4 * BATCH_BYTES)
    for suffix in ("index", "timeindex"):
        fs.put(path.replace("log", suffix), b"")
    log = open_log_dir(fs, SMALL).logs["t", 0]
    with pytest.raises(CorruptRecordError, match="no valid batch at position"):
        log.read(5, 10_000, end_offset=COUNT)
