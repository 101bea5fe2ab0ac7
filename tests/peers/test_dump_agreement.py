"""`kafka-dump-log` and `kraftctl log inspect` read the same in random logs: segments, indexes, transactions, producers."""

import random
import shutil
from pathlib import Path

import pytest

from benchmarks.peers import kafka
from kraftlog.logstore import RealFileSystem
from tests.peers.dump_agreement import check_agreement, complaints_in, dump, gaps_in
from tests.property.random_logs import NOW_MS, RandomWriter, random_config
from tests.unit.logstore.builders import open_log_dir

pytestmark = pytest.mark.deep

LOGS = 80
SEED = random.randrange(1 << 32)


@pytest.fixture(scope="module")
def log_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Random logs after an orderly stop; some were opened again after a stop or a crash in between."""
    kafka.peer("setup")
    print("seed", SEED)
    rng = random.Random(SEED)
    path = tmp_path_factory.mktemp("random") / "data"
    configs = {f"t{number}": random_config(rng) for number in range(LOGS)}
    opened = open_log_dir(RealFileSystem(), path=str(path))
    for topic, config in configs.items():
        opened.create_log(topic, 0, config=config, now_ms=NOW_MS)
    for is_last, clean in ((False, True), (False, False), (True, True)):
        for topic, config in configs.items():
            log = opened.logs[topic, 0]
            log.config = config
            RandomWriter(log, rng).write(rng.choice((0, 5, 40, 80)))
        opened.close(clean)
        if not is_last:
            opened = open_log_dir(RealFileSystem(), path=str(path))
    return path


def test_both_tools_read_the_same_in_every_file(log_dir: Path) -> None:
    compared = check_agreement(log_dir)
    print("seed", SEED, compared)
    assert min(compared[suffix] for suffix in (".log", ".index", ".timeindex", ".snapshot")) > 1000
    assert compared[".txnindex"] > 100


def test_kafkas_tool_sees_no_gap_between_offsets(log_dir: Path) -> None:
    for folder in sorted(log_dir.iterdir())[:5]:
        if folder.is_dir():
            gaps = gaps_in(dump(sorted(folder.glob("*.log")), "--print-data-log", "--deep-iteration"))
            assert all(last == -1 for last, _ in gaps), f"seed {SEED}: {folder}: {gaps}"


@pytest.mark.parametrize("suffix", [".index", ".timeindex", ".snapshot", ".log"])
def test_a_planted_difference_is_seen(log_dir: Path, tmp_path: Path, suffix: str) -> None:
    """The check can fail: one bit anywhere near the start of a file."""
    source = max(log_dir.glob(f"*/*{suffix}"), key=lambda path: path.stat().st_size).parent
    folder = tmp_path / "data" / source.name
    folder.mkdir(parents=True)
    for path in source.iterdir():
        (folder / path.name).write_bytes(path.read_bytes())
    shutil.copy(log_dir / "meta.properties", tmp_path / "data")
    check_agreement(tmp_path / "data")
    victim = max(folder.glob(f"*{suffix}"), key=lambda path: path.stat().st_size)
    content = bytearray(victim.read_bytes())
    content[{".log": 70, ".snapshot": 20}.get(suffix, 3)] ^= 1
    victim.write_bytes(content)
    with pytest.raises((AssertionError, RuntimeError)):
        assert complaints_in(dump([victim], *(["--deep-iteration"] if suffix == ".log" else []))) == []
