"""Which twin is active, and that it can be chosen."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from kraftlog.proto import records
from kraftlog.proto.records import backend

SHOW = "import kraftlog.proto.records as r; print(r.codec, r.BatchBuilder.__mro__[-2].__module__)"


def run(code: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", code], env=os.environ | environment, capture_output=True, text=True, check=False
    )


def test_reference_can_be_forced() -> None:
    """KRAFTLOG_CODEC=python: for debugging, and for tests of the fallback."""
    assert run(SHOW, KRAFTLOG_CODEC="python").stdout == "python kraftlog.proto.records._reference\n"


def test_c_twin_is_the_default_where_it_is_built() -> None:
    try:
        backend.load("c")
    except ImportError:
        pytest.skip("the C twin is not built")
    assert run(SHOW, KRAFTLOG_CODEC="").stdout.startswith("c ")


def test_unknown_choice_is_an_error() -> None:
    result = run(SHOW, KRAFTLOG_CODEC="rust")
    assert result.returncode != 0
    assert "KRAFTLOG_CODEC='rust' is neither c nor python" in result.stderr


def test_missing_twin_falls_back_silently_and_is_an_error_when_asked_for() -> None:
    """An install without a compiler works; who asks for C is told."""
    hidden = "import sys; sys.modules['kraftlog.proto.records._codec'] = None; " + SHOW
    assert run(hidden, KRAFTLOG_CODEC="").stdout.startswith("python ")
    assert run(hidden, KRAFTLOG_CODEC="c").returncode != 0


def test_twins_provide_the_same_names() -> None:
    names = {name for name in vars(backend.Codec) if not name.startswith("_")} | {"NAME"}
    for name in ("python", "c"):
        try:
            codec = backend.load(name)
        except ImportError:
            continue
        assert name == codec.NAME
        assert names <= set(dir(codec))


def test_records_need_neither_pyarrow_nor_grpc() -> None:
    """The core install has neither."""
    code = "import sys; import kraftlog.proto.records, kraftlog.proto.hotpath; print({'pyarrow', 'grpc', 'numpy'} & set(sys.modules))"
    assert run(code).stdout == "set()\n"


def test_public_names_exist() -> None:
    for name in records.__all__:
        assert getattr(records, name) is not None
    assert Path(records.__file__).name == "__init__.py"
