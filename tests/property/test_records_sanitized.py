"""The C twin under AddressSanitizer and UBSan: mutated batches must not make it read, write or count out of bounds.

Builds the extension anew with gcc's sanitizers and runs `sanitized_run.py` on it in a process of its own.
"""

import os
import random
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

pytestmark = [pytest.mark.deep, pytest.mark.slow, pytest.mark.timeout(1800)]

ROOT = Path(__file__).parents[2]
ROUNDS = int(os.environ.get("KRAFTLOG_EXAMPLES", "20000"))
FLAGS = ["-g", "-O1", "-fPIC", "-shared", "-fsanitize=address,undefined", "-fno-sanitize-recover=all"]


def build(target: Path) -> str:
    """Compile the twin with sanitizers; return the runtime that must be loaded first."""
    compiler = shutil.which("gcc")
    if compiler is None:
        pytest.skip("no gcc")
    source = ROOT / "proto" / "records" / "_codec.c"
    command = [compiler, *FLAGS, f"-I{sysconfig.get_paths()['include']}", str(source), "-o", str(target)]
    subprocess.run(command, check=True)
    runtime = subprocess.run(
        [compiler, "-print-file-name=libasan.so"], check=True, capture_output=True, text=True
    ).stdout.strip()
    if not Path(runtime).exists():
        pytest.skip("gcc has no libasan")
    return runtime


def run(extension: Path, runtime: str, seed: int, rounds: int) -> subprocess.CompletedProcess[str]:
    environment = os.environ | {
        "LD_PRELOAD": runtime,
        "ASAN_OPTIONS": "detect_leaks=0:abort_on_error=0",  # the interpreter itself leaks on exit
        "PYTHONMALLOC": "malloc",  # else Python's own allocator hides overruns
    }
    script = Path(__file__).with_name("sanitized_run.py")
    vectors = ROOT / "tests" / "data" / "vectors.json"
    command = [sys.executable, str(script), str(extension), str(vectors), str(seed), str(rounds)]
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=False, cwd=ROOT)


def test_mutated_batches_stay_within_bounds(tmp_path: Path) -> None:
    """Whatever bytes come, the parser reads only what is there."""
    seed = random.SystemRandom().randrange(1 << 32)
    print(f"seed {seed}")
    extension = tmp_path / "_codec.so"
    runtime = build(extension)
    result = run(extension, runtime, seed, ROUNDS)
    assert result.returncode == 0, f"seed {seed}\n{result.stdout[-2000:]}\n{result.stderr[-8000:]}"
    assert result.stdout.rstrip().endswith("inputs")
