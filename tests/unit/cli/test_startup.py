"""kraftctl starts fast: `--help`, `--version` and offline verbs load neither grpc nor anything else that is heavy."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

OFFLINE = [
    ["--version"],
    ["--help"],
    ["topic", "--help"],
    ["produce", "--help"],
    ["consume", "--help"],
    ["group", "--help"],
    ["cluster", "--help"],
    ["log", "inspect", "--help"],
    ["explain", "19"],
    ["cluster", "stop"],
]
HEAVY = {"grpc", "google.protobuf", "asyncio", "pyarrow", "pyspark", "numpy", "rich", "pandas"}
MAX_MODULES = 120
"""What a verb may load beside the interpreter's own; `benchmarks/bench_startup.py` has the time that it takes."""

PROBE = """
import sys
at_start = set(sys.modules)
from kraftlog.sdk.cli.main import run
code = run(sys.argv[1:])
print(*sys.modules, file=sys.stderr)
print(*set(sys.modules) - at_start, file=sys.stderr)
sys.exit(code)
"""


@pytest.mark.parametrize("arguments", OFFLINE, ids=" ".join)
def test_offline_verbs_load_little_and_nothing_heavy(arguments: list[str], tmp_path: Path) -> None:
    environment = {**os.environ, "KRAFTLOG_HOME": str(tmp_path)}
    ended = subprocess.run(
        [sys.executable, "-c", PROBE, *arguments],
        capture_output=True,
        text=True,
        env=environment,
        check=True,
    )
    loaded, own = (set(line.split()) for line in ended.stderr.splitlines()[-2:])
    assert "kraftlog.sdk.cli.main" in own
    assert not loaded & HEAVY
    assert len(own) <= MAX_MODULES, sorted(own)
