"""The scenario files: reading them is reading how replicas keep what was acknowledged."""

from pathlib import Path

import pytest

from tests.scenarios.isr.runner import files, replay


@pytest.mark.parametrize("path", files(), ids=lambda path: path.stem)
def test_scenario(path: Path) -> None:
    """The outcome is the one in the file; `python -m tests.scenarios.isr.runner --rewrite` writes a new one."""
    text = path.read_text()
    assert "BROKEN" not in text
    assert replay(text).splitlines() == text.splitlines()
