"""The benchmark of the log store runs: every part, with very little data."""

import importlib
from pathlib import Path

import pytest


@pytest.mark.slow
def test_every_part_gives_its_figures(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(Path(__file__).parents[2] / "benchmarks"))
    bench = importlib.import_module("bench_logstore")
    sizes = bench.Sizes(
        append_bytes=2 << 20,
        read_bytes=4 << 20,
        read_segment_bytes=1 << 20,
        lookup_segments=(1, 3),
        lookups=5,
        recovery_bytes=2 << 20,
        idle_partitions=3,
        ack_partitions=(1, 3),
        ack_seconds=0.0,
        rounds=1,
    )
    figures = list(bench.run(list(bench.PARTS), sizes, tmp_path))
    assert {figure.what.split(",")[0].split()[0] for figure in figures} == {
        "acknowledged",
        "append",
        "closing",
        "lookup",
        "memory",
        "opening",
        "recovery",
        "sequential",
    }
    assert all(figure.measured and figure.row.count("|") == 5 for figure in figures)
    assert not any(tmp_path.iterdir()), "it cleans up"
