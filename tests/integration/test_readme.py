"""README.md runs as written: its blocks are taken from the file and run one after the other, on one cluster.

Only the address differs: tests do not choose port numbers, so `localhost:9092` becomes the kernel's choice.
"""

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

README = Path(__file__).parents[2] / "README.md"
BLOCK = re.compile(
    r"(?P<skip><!-- not run by the tests[^\n]*-->\n)?```(?P<language>bash|python)\n(?P<code>.*?)```", re.DOTALL
)


@dataclass(frozen=True)
class Block:
    """One piece of code of the README."""

    language: str
    code: str
    line: int


def blocks() -> list[Block]:
    text = README.read_text(encoding="utf-8")
    return [
        Block(found["language"], found["code"], text.count("\n", 0, found.start("code")))
        for found in BLOCK.finditer(text)
        if not found["skip"]
    ]


@pytest.fixture
def environment(tmp_path: Path) -> Iterator[dict[str, str]]:
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    variables = {**os.environ, "PATH": path, "KRAFTLOG_HOME": str(tmp_path / "home"), "KRAFTLOG_PORT": "0"}
    yield variables
    subprocess.run(
        [sys.executable, "-m", "kraftlog.sdk.cli.main", "cluster", "stop", "--force"], env=variables, check=True
    )


@pytest.mark.spark
@pytest.mark.processes
@pytest.mark.timeout(600)
def test_every_block_of_the_readme_runs(environment: dict[str, str], tmp_path: Path) -> None:
    found = blocks()
    assert {"bash", "python"} == {block.language for block in found}
    printed = ""
    address = ""
    for block in found:
        code = block.code.replace("localhost:9092", address) if address else block.code
        command = ["bash", "-euo", "pipefail", "-c", code] if block.language == "bash" else [sys.executable, "-c", code]
        ended = subprocess.run(
            command, env=environment, cwd=tmp_path, capture_output=True, text=True, check=False, timeout=300
        )
        assert ended.returncode == 0, f"README.md line {block.line}:\n{code}\n{ended.stdout}\n{ended.stderr}"
        printed += ended.stdout
        if started := re.search(r"is running at (\S+)", ended.stdout):
            address = started.group(1)
    assert address
    assert re.search(r"greetings-\d offset 0: hello, log\n", printed)
    assert "quorum-fsync" in printed
    assert '"value": "3 spoons"' in printed
    assert re.search(r"group kitchen: .*lag 0", printed)
    assert re.search(r"\|ann\| +3\|", printed)
    assert re.search(r"\|bob\| +2\|", printed)
