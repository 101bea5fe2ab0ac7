"""The benchmark of the quorum beside Apache Kafka: both sides do the same, and every figure is there."""

import importlib
from pathlib import Path

import pytest

pytestmark = pytest.mark.deep


def test_both_sides_do_what_is_measured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(Path(__file__).parents[2] / "benchmarks"))
    figures = list(importlib.import_module("quorum_peer").compare(tmp_path, rounds=1, partitions=5))
    assert [what.split(",")[0] for what, *_ in figures] == [
        *["start to first topic", "resident memory of an idle node"],
        *["5 partitions created", "5 partitions created", "resident memory of a node after 5 partitions"],
        *["start to first topic", "resident memory of an idle node"],
        *["5 partitions created", "5 partitions created", "resident memory of a node after 5 partitions"],
        "controller failover",
    ]
    assert all(ours > 0 and peers > 0 for _, ours, peers, _ in figures)
