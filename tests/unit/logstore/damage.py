"""Damage to the files of a log in memory, and what a repair must leave of it. Everything lies in `DATA`."""

import random
from dataclasses import dataclass

from kraftlog.logstore import Log
from kraftlog.logstore.repair import Repair, repair_log_dir
from kraftlog.logstore.scan import InvalidBytes, scan_file
from kraftlog.logstore.verify import Finding, verify_log_dir
from kraftlog.proto.records import decode_batch, read_header
from kraftlog.testing.filesystem import SimFileSystem
from tests.unit.logstore.builders import DATA, SMALL, append, open_log_dir


@dataclass(frozen=True)
class Stored:
    position: int
    data: bytes


def stored_batches(fs: SimFileSystem, folder: str) -> dict[str, list[Stored]]:
    found = {}
    for name in fs.listdir(folder):
        if name.endswith(".log"):
            file = fs.open(f"{folder}/{name}")
            found[name] = [
                Stored(each.position, bytes(each.data))
                for each in scan_file(file, int(name[:20]))
                if not isinstance(each, InvalidBytes)
            ]
    return found


def problems(fs: SimFileSystem) -> list[Finding]:
    return [problem for report in verify_log_dir(fs, DATA) for problem in report.problems]


def records_of(log: Log) -> list[tuple[int, bytes | None]]:
    offset, records = log.log_start_offset, []
    while offset < log.log_end_offset:
        result = log.read(offset, 1 << 20, end_offset=log.log_end_offset)
        position = 0
        while position < len(result.records):
            for record in decode_batch(result.records, position):
                records.append((record.offset, record.value))
            position += 12 + int.from_bytes(result.records[position + 8 : position + 12], "big")
        offset = result.next_offset
    return records


def repaired(fs: SimFileSystem) -> Repair:
    """Of the first partition that something was wrong with."""
    repairs = repair_log_dir(fs, DATA, dry_run=False)
    assert [str(finding) for repair in repairs for finding in repair.remaining] == []
    assert problems(fs) == []
    return next((repair for repair in repairs[1:] if repair.problems), repairs[1])


def damage_somewhere(fs: SimFileSystem, folder: str, rng: random.Random) -> None:
    """Flip, overwrite, zero or cut somewhere in the `.log` files, once to three times."""
    for _ in range(rng.randint(1, 3)):
        name = rng.choice([name for name in fs.listdir(folder) if name.endswith(".log")])
        file = fs.open(f"{folder}/{name}")
        size = file.size()
        if not size:
            continue
        position = rng.randrange(size)
        match rng.randrange(4):
            case 0:
                byte = file.pread(1, position)[0] ^ (1 << rng.randrange(8))
                file.pwritev([bytes([byte])], position)
            case 1:
                file.pwritev([rng.randbytes(min(40, size - position))], position)
            case 2:
                file.pwritev([bytes(min(100, size - position))], position)
            case _:
                file.truncate(position)
        file.fdatasync()


def check_repair(fs: SimFileSystem, key: tuple[str, int], whole: dict[str, list[Stored]], seed: int) -> None:
    """Every batch that the damage left alone is still there, byte for byte; the rest is kept aside.

    `whole`: what `stored_batches` found before the damage.
    """
    folder = f"{DATA}/{key[0]}-{key[1]}"
    damaged = stored_batches(fs, folder)
    left = {each.data for batches in damaged.values() for each in batches} & {
        each.data for batches in whole.values() for each in batches
    }
    contents = {name: fs.contents(f"{folder}/{name}") for name in damaged}
    repair = repaired(fs)
    kept = {each.data for batches in stored_batches(fs, folder).values() for each in batches}
    assert left <= kept, f"seed {seed}"
    for cut in repair.cuts:
        content = contents[cut.path.rpartition("/")[2]][cut.position : cut.position + cut.size_bytes]
        assert content.count(0) == len(content) if cut.kept_in is None else fs.contents(cut.kept_in) == content
    log = open_log_dir(fs, SMALL).logs[key]
    assert log.damage is None
    offsets = [offset for offset, _ in records_of(log)]
    assert offsets == sorted(set(offsets)), f"seed {seed}"
    readable = [data for data in kept if read_header(data).last_offset >= log.log_start_offset]
    stored = sorted(record.offset for data in readable for record in decode_batch(data))
    assert offsets == stored, f"seed {seed}: the log gives what its files hold"
    append(log, "goes on", leader_epoch=10)
    log.flush()
