"""README.md and docs/tls.md run as written: their blocks are taken from the files and run one after the other."""

import re
from pathlib import Path

import pytest

from tests.integration.documents import blocks, cluster_home, run_blocks


@pytest.mark.spark
@pytest.mark.processes
@pytest.mark.timeout(600)
def test_every_block_of_the_readme_runs(tmp_path: Path) -> None:
    assert {"bash", "python"} == {block.language for block in blocks("README.md")}
    with cluster_home(tmp_path / "home") as environment:
        printed = run_blocks("README.md", environment, tmp_path)
    assert re.search(r"greetings-\d offset 0: hello, log\n", printed)
    assert "quorum-fsync" in printed
    assert '"value": "3 spoons"' in printed
    assert re.search(r"group kitchen: .*lag 0", printed)
    assert re.search(r"\|ann\| +3\|", printed)
    assert re.search(r"\|bob\| +2\|", printed)


@pytest.mark.slow
@pytest.mark.processes
def test_every_block_of_the_page_on_tls_runs(tmp_path: Path) -> None:
    """With the system's openssl; every record comes back over connections with certificates on both sides."""
    with cluster_home(tmp_path / "home") as environment:
        printed = run_blocks("docs/tls.md", environment, tmp_path)
    assert "1 tea\n" in printed
    assert "[b'1 tea']\n" in printed
    assert re.search(r"quorum: leader 1, .*\n(.*\n)+ +3  voter", printed)
