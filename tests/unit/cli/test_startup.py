"""kraftctl starts fast: `--help`, `--version` and offline verbs load neither grpc nor anything else that is heavy."""

import os
import resource
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
LIMIT_S = 0.150

PROBE = """
import sys
from kraftlog.sdk.cli.main import run
code = run(sys.argv[1:])
loaded = {name for name in sys.modules}
print("LOADED", *sorted(loaded & set(%r)), file=sys.stderr)
sys.exit(code)
"""


@pytest.mark.parametrize("arguments", OFFLINE, ids=" ".join)
def test_offline_verbs_load_nothing_heavy(arguments: list[str], tmp_path: Path) -> None:
    environment = {**os.environ, "KRAFTLOG_HOME": str(tmp_path)}
    ended = subprocess.run(
        [sys.executable, "-c", PROBE % sorted(HEAVY), *arguments],
        capture_output=True,
        text=True,
        env=environment,
        check=True,
    )
    assert ended.stderr.splitlines()[-1] == "LOADED"


@pytest.mark.parametrize("arguments", [["--version"], ["--help"], ["explain", "19"], ["cluster", "stop"]], ids=" ".join)
def test_offline_verbs_cost_less_than_150_ms(arguments: list[str], tmp_path: Path) -> None:
    """Processor time, the best of five: what the clock on the wall shows depends on the machine's other work."""
    environment = {**os.environ, "KRAFTLOG_HOME": str(tmp_path)}
    best = min(
        _processor_seconds([sys.executable, "-m", "kraftlog.sdk.cli.main", *arguments], environment) for _ in range(5)
    )
    assert best < LIMIT_S


def _processor_seconds(command: list[str], environment: dict[str, str]) -> float:
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(command, capture_output=True, env=environment, check=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
