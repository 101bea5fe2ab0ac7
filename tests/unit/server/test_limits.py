"""The node asks for as many open files as it may have, and leaves half of them to connections."""

import resource
from collections.abc import Iterator

import pytest

from kraftlog.server.config import NodeConfig
from kraftlog.server.limits import raise_open_files_limit
from kraftlog.server.main import _within_limits


@pytest.fixture(autouse=True)
def limits() -> Iterator[tuple[int, int]]:
    """(soft, hard) of this process, put back at the end."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    yield soft, hard
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_the_limit_is_raised_as_far_as_the_process_may(limits: tuple[int, int]) -> None:
    _, hard = limits
    resource.setrlimit(resource.RLIMIT_NOFILE, (256, hard))
    raised = raise_open_files_limit()
    assert raised == resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    assert raised == (1 << 20 if hard == resource.RLIM_INFINITY else min(hard, 1 << 20))
    assert raise_open_files_limit() == raised


def test_more_than_half_of_the_limit_is_lowered_to_it(caplog: pytest.LogCaptureFixture) -> None:
    half = raise_open_files_limit() // 2
    assert _within_limits(NodeConfig(log_max_open_files=half)).log_max_open_files == half
    assert caplog.records == []
    assert _within_limits(NodeConfig(log_max_open_files=half + 1)).log_max_open_files == half
    assert "log.max.open.files" in caplog.text
