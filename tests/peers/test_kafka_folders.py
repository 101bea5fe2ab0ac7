"""Log directories that Apache Kafka has just written: opened, read byte for byte, written on, and read by Kafka again."""

import random
import shutil
from pathlib import Path

import pytest

from kraftlog.logstore import LogConfig
from tests.peers.dump_agreement import check_agreement, complaints_in, dump, gaps_in
from tests.peers.kafka_folders import write_log_dir
from tests.unit.logstore import kafka_folders as written

pytestmark = pytest.mark.deep

ROUNDS = 100
ENDINGS = ["clean", "killed"]


@pytest.fixture(scope="module", params=ENDINGS)
def log_dir(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    seed = random.randrange(1 << 32)
    print("seed", seed)
    return write_log_dir(tmp_path_factory.mktemp("kafka"), seed=seed, rounds=ROUNDS, ending=request.param)


@pytest.fixture
def copy(log_dir: Path, tmp_path: Path) -> Path:
    """Each test opens its own: opening changes files."""
    return Path(shutil.copytree(log_dir, tmp_path / "logs"))


def test_the_tools_find_nothing_wrong_and_every_byte(copy: Path) -> None:
    """In Kafka's own topics (metadata, transactions) as well."""
    written.check_tools(copy, written.expected_of(copy))
    assert len([path for path in copy.iterdir() if path.name.startswith("__")]) > 2


def test_logs_hold_what_kafkas_own_clients_read(copy: Path) -> None:
    expected = written.expected_of(copy)
    folders = [path for path in copy.iterdir() if path.is_dir()]
    before = {folder.name: written.segment_bytes(folder) for folder in folders}
    opened = written.open_written_by_kafka(copy)
    for topic, facts in expected.items():
        written.check_log(opened.logs[topic, 0], copy / f"{topic}-0", facts, before[f"{topic}-0"])
    for (topic, partition), log in opened.logs.items():
        assert log.damage is None
        data = before[f"{topic}-{partition}"]
        assert written.read_all(log, log.log_start_offset) == data[written.before(data, log.log_start_offset) :]
    opened.close()


def test_kafkas_tool_reads_what_is_appended_to_kafkas_logs(copy: Path) -> None:
    """Old and new segments, indexes, transactions and producers, as both tools see them."""
    for folder in copy.glob("__*"):
        shutil.rmtree(folder)  # binary records
    opened = written.open_written_by_kafka(copy, LogConfig(index_interval_bytes=200))
    for log in opened.logs.values():
        written.append_more(log)
    bases = {f"{topic}-{partition}": log.segment_base_offsets for (topic, partition), log in opened.logs.items()}
    opened.close()
    compared = check_agreement(copy)
    assert min(compared.values()) > 5
    for topic in ("codecs", "stamped", "transactions"):
        logs = sorted((copy / f"{topic}-0").glob("*.log"))
        assert [int(path.stem) for path in logs] == bases[f"{topic}-0"]
        output = dump(logs, "--deep-iteration")
        assert complaints_in(output) == []
        assert all(last == -1 for last, _ in gaps_in(output))
    assert written.problems_in(copy) == []
