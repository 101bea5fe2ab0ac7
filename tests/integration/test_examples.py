"""The small programs of examples/ run against a real node, as their first lines say."""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from kraftlog import Admin
from kraftlog.sdk.types import NewTopic
from kraftlog.testing import cluster

pytestmark = pytest.mark.processes

EXAMPLES = Path(__file__).parents[2] / "examples"


@pytest.fixture(scope="module")
def servers() -> Iterator[str]:
    with cluster(config={"offsets.topic.num.partitions": "4"}) as running:
        yield running.bootstrap_servers


def run(name: str, *arguments: str) -> list[str]:
    """The lines that an example prints; nothing may go to standard error."""
    ended = subprocess.run(
        [sys.executable, str(EXAMPLES / name), *arguments], capture_output=True, text=True, check=False, timeout=60
    )
    assert ended.returncode == 0, ended.stderr
    assert ended.stderr == ""
    return ended.stdout.splitlines()


@pytest.mark.parametrize("prefix", ["", "async_"], ids=["sync", "async"])
def test_what_an_example_writes_the_other_reads(servers: str, prefix: str) -> None:
    topic = f"{prefix}greetings"
    with Admin(bootstrap_servers=servers) as admin:
        admin.create_topics([NewTopic(name=topic, num_partitions=3)])
    written = run(f"{prefix}produce.py", servers, topic)
    assert len(written) == 10
    assert all("quorum-fsync" in line for line in written)
    read = run(f"{prefix}consume.py", servers, topic)
    assert len(read) == 10
    assert "hello 0" in read[0]
    assert "hello 9" in read[9]
