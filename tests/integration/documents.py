"""Documents whose blocks of code run as written, one after the other, in one folder.

Only the address differs: tests do not choose port numbers, so `localhost:9092` becomes the kernel's choice.
"""

import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

ADDRESS = "localhost:9092"
_ROOT = Path(__file__).parents[2]
_BLOCK = re.compile(
    r"(?P<skip><!-- not run by the tests[^\n]*-->\n)?```(?P<language>bash|python)\n(?P<code>.*?)```", re.DOTALL
)


_EXPORT = re.compile(r"^export (\w+)=(\S+)$", re.MULTILINE)


@dataclass(frozen=True)
class Block:
    """One piece of code of a document."""

    language: str
    code: str
    line: int


def blocks(document: str) -> list[Block]:
    """The blocks of a file, by its path in the checkout, without those that say that they do not run."""
    text = (_ROOT / document).read_text(encoding="utf-8")
    return [
        Block(found["language"], found["code"], text.count("\n", 0, found.start("code")))
        for found in _BLOCK.finditer(text)
        if not found["skip"]
    ]


@contextmanager
def cluster_home(home: Path) -> Iterator[dict[str, str]]:
    """An environment with kraftctl and python, and a local cluster of its own that ends with the block."""
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    clean = {key: value for key, value in os.environ.items() if not key.startswith("KRAFTLOG_")}
    variables = {**clean, "PATH": path, "KRAFTLOG_HOME": str(home), "KRAFTLOG_PORT": "0"}
    try:
        yield variables
    finally:
        subprocess.run(
            [sys.executable, "-m", "kraftlog.sdk.cli.main", "cluster", "stop", "--force"], env=variables, check=True
        )


def run_blocks(
    document: str,
    environment: Mapping[str, str],
    directory: Path,
    *,
    chosen: Callable[[Block], bool] = lambda block: True,
) -> str:
    """Run all blocks that are `chosen`, each with what the ones before exported; returns what they printed. Fails with the
    line of the block that does."""
    printed = ""
    address = ""
    exported: dict[str, str] = {}
    for block in filter(chosen, blocks(document)):
        code = block.code.replace(ADDRESS, address or "localhost:0")
        printed_now = run_block(document, replace(block, code=code), {**environment, **exported}, directory)
        printed += printed_now
        exported |= {found[1]: found[2].replace("$PWD", str(directory)) for found in _EXPORT.finditer(block.code)}
        if started := re.search(r"is running at (\S+)", printed_now):
            address = started.group(1)
    assert address, f"{document} starts no cluster"
    return printed


def run_block(document: str, block: Block, environment: Mapping[str, str], directory: Path) -> str:
    """Run one block; returns what it printed."""
    shell = ["bash", "-euo", "pipefail", "-c", block.code]
    command = shell if block.language == "bash" else [sys.executable, "-c", block.code]
    ended = subprocess.run(
        command, env=environment, cwd=directory, capture_output=True, text=True, check=False, timeout=300
    )
    assert ended.returncode == 0, f"{document} line {block.line}:\n{block.code}\n{ended.stdout}\n{ended.stderr}"
    return ended.stdout
