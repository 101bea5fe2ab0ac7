"""The scenario files: reading them is reading how the core behaves."""

from pathlib import Path

import pytest

from tests.scenarios.raft.runner import files, replay


@pytest.mark.parametrize("path", files(), ids=lambda path: path.stem)
def test_scenario(path: Path) -> None:
    """The outcome is the one in the file; `python -m tests.scenarios.raft.runner --rewrite` writes a new one."""
    text = path.read_text()
    assert replay(text).splitlines() == text.splitlines()
