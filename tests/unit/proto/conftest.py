"""Both twins of the record codec: a test that takes `twin` runs once on each."""

from types import SimpleNamespace
from typing import Any

import pytest

from kraftlog.proto.records import arrow, backend, builder, control


def builder_class(codec: backend.Codec) -> Any:
    """The `BatchBuilder` of one twin."""
    return type("BatchBuilder", (builder._Batching, codec.RecordAppender), {})


@pytest.fixture(params=["python", "c"])
def twin(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """The active twin, as a namespace of its codec and its BatchBuilder."""
    try:
        codec = backend.load(request.param)
    except ImportError:
        pytest.skip("the C twin is not built")
    batch_builder = builder_class(codec)
    monkeypatch.setattr(backend, "current", codec)
    for module in (arrow, builder, control):
        monkeypatch.setattr(module, "BatchBuilder", batch_builder)
    return SimpleNamespace(name=request.param, codec=codec, BatchBuilder=batch_builder)
