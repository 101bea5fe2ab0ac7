"""Log directories that Apache Kafka 4.4.0 wrote (`tests/data/kafka_folders`): opened, read byte for byte, written on."""

from pathlib import Path

import pytest

from kraftlog.logstore import LogConfig
from tests.unit.logstore import kafka_folders as written

ENDINGS = ["clean", "killed"]


@pytest.fixture(params=ENDINGS)
def log_dir(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    return written.unpack(request.param, tmp_path)


def test_the_tools_find_nothing_wrong_and_every_byte(log_dir: Path) -> None:
    written.check_tools(log_dir, written.expected_of(log_dir))


def test_logs_hold_what_kafkas_own_clients_read(log_dir: Path) -> None:
    expected = written.expected_of(log_dir)
    before = {topic: written.segment_bytes(log_dir / f"{topic}-0") for topic in expected}
    opened = written.open_written_by_kafka(log_dir)
    for topic, facts in expected.items():
        written.check_log(opened.logs[topic, 0], log_dir / f"{topic}-0", facts, before[topic])
    opened.close()


def test_logs_go_on_behind_kafkas_batches(log_dir: Path) -> None:
    expected = written.expected_of(log_dir)
    before = {topic: written.segment_bytes(log_dir / f"{topic}-0") for topic in expected}
    opened = written.open_written_by_kafka(log_dir, LogConfig(index_interval_bytes=200))
    for topic in expected:
        written.append_more(opened.logs[topic, 0])
    opened.close()
    assert written.problems_in(log_dir) == []
    opened = written.open_written_by_kafka(log_dir)
    for topic, facts in expected.items():
        log = opened.logs[topic, 0]
        assert log.damage is None
        assert log.log_end_offset == facts["offsets"][1] + 24
        data = written.read_all(log, log.log_start_offset)
        kept = before[topic][written.before(before[topic], log.log_start_offset) :]
        assert data.startswith(kept)
        assert len(data) > len(kept)
    opened.close(clean=False)
