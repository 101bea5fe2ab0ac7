"""Which disks a power loss may leave, by the recorder's rules."""

import random
from collections.abc import Callable

from kraftlog.testing.crash_points import RecordingFileSystem, legal_states


def states_of(write: Callable[[RecordingFileSystem], None]) -> set[tuple[tuple[str, bytes], ...]]:
    """The contents that directory /d may have when the power goes out after `write`, begun on an empty /d."""
    fs = RecordingFileSystem()
    fs.mkdir("/d")
    fs.fsync_dir("/")
    fs.fsync_dir("/d")
    write(fs)
    *_, (_, disk) = fs.trace.crash_points()
    found = set()
    for _, state in legal_states(disk, random.Random(1), 300):
        found.add(tuple((name, state.contents(f"/d/{name}")) for name in state.listdir("/d")))
    return found


def put(fs: RecordingFileSystem, path: str, data: bytes, *, sync: bool) -> None:
    file = fs.open(path, create=True)
    file.pwritev([data], 0)
    if sync:
        file.fdatasync()


def test_a_name_and_its_content_are_synced_apart() -> None:
    assert states_of(lambda fs: put(fs, "/d/a", b"x", sync=True)) == {(), (("a", b"x"),)}

    def only_the_name(fs: RecordingFileSystem) -> None:
        put(fs, "/d/a", b"x", sync=False)
        fs.fsync_dir("/d")

    assert states_of(only_the_name) == {
        (("a", b""),),
        (("a", b"\0"),),
        (("a", b"x"),),
    }


def test_unsynced_sectors_come_in_any_subset() -> None:
    def write(fs: RecordingFileSystem) -> None:
        put(fs, "/d/a", bytes(1100), sync=True)
        fs.fsync_dir("/d")
        fs.open("/d/a").pwritev([b"x" * 900], 200)

    masks = {
        tuple(bool(content[at]) for at in (200, 512, 1024))
        for ((_, content),) in states_of(write)
        if len(content) == 1100
    }
    assert len(masks) == 8


def test_what_was_cut_does_not_come_back() -> None:
    def write(fs: RecordingFileSystem) -> None:
        put(fs, "/d/a", b"old" * 400, sync=True)
        fs.fsync_dir("/d")
        file = fs.open("/d/a")
        file.truncate(600)
        file.preallocate(600, 600)

    assert {content[600:] for ((_, content),) in states_of(write)} == {(b"old" * 400)[600:], b"", bytes(600)}


def test_changes_of_a_directory_come_in_any_subset_but_in_order_for_each_name() -> None:
    def write(fs: RecordingFileSystem) -> None:
        put(fs, "/d/a", b"1", sync=True)
        fs.fsync_dir("/d")
        put(fs, "/d/a.tmp", b"2", sync=True)
        fs.rename("/d/a.tmp", "/d/a")
        put(fs, "/d/b", b"3", sync=True)

    files = [(("a", b"1"),), (("a", b"1"), ("a.tmp", b"2")), (("a", b"2"),)]
    assert states_of(write) == {*files, *(tuple(sorted((*names, ("b", b"3")))) for names in files)}


def test_what_was_synced_is_there() -> None:
    def write(fs: RecordingFileSystem) -> None:
        put(fs, "/d/a", b"1" * 5000, sync=True)
        fs.fsync_dir("/d")

    assert states_of(write) == {(("a", b"1" * 5000),)}


def test_a_trace_is_played_change_by_change() -> None:
    fs = RecordingFileSystem()
    fs.mkdir("/d")
    put(fs, "/d/a", b"12", sync=False)
    fs.rename("/d/a", "/d/b")
    seen = [(number, disk.size("/d/a"), disk.size("/d/b")) for number, disk in fs.trace.crash_points()]
    assert seen == [(0, None, None), (1, None, None), (2, 0, None), (3, 2, None), (4, None, 2)]
    assert str(fs.trace.changes[2]) == "file 0: pwritev(<2 bytes>, 0)"
