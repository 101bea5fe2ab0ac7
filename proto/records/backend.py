"""Which implementation of the hot loops is active: the C twin where it was built, else the pure-Python reference.

Both modules provide the names of `Codec` and are held equal by tests. The environment variable KRAFTLOG_CODEC=python
forces the reference; KRAFTLOG_CODEC=c turns a missing twin into an ImportError instead of a silent fallback.
"""

import importlib
import os
from typing import Any, Protocol, cast

Buffer = bytes | bytearray | memoryview


class Codec(Protocol):
    """What a twin provides; the functions of `_reference` document themselves."""

    NAME: str

    @property
    def RecordAppender(self) -> type[Any]: ...

    @property
    def Record(self) -> type[Any]: ...

    @property
    def ArrowColumns(self) -> type[Any]: ...

    def append_columns(
        self,
        appender: Any,
        row: int,
        end_row: int,
        max_bytes: int,
        timestamps: Any,
        key: Any,
        value: Any,
        header_ends: Any,
        header_key: Any,
        header_value: Any,
        /,
    ) -> int: ...

    def partition_column(self, length: int, keys: Any, partition_count: int, /) -> Any: ...

    def crc32c(self, data: Buffer, value: int = 0, /) -> int: ...

    def parse_header(self, header_class: Any, buffer: Buffer, position: int, /) -> Any: ...

    def batch_crc(self, buffer: Buffer, position: int, size: int, /) -> int: ...

    def murmur2(self, data: Buffer, /) -> int: ...

    def snappy_compress(self, data: Buffer, /) -> bytes: ...

    def snappy_decompress(self, data: Buffer, limit: int, /) -> bytes: ...

    def validate_records(
        self,
        section: Buffer,
        record_count: int,
        last_offset_delta: int,
        base_timestamp: int,
        is_consecutive: bool,
        require_keys: bool,
        /,
    ) -> int: ...

    def decode_records(
        self,
        section: Buffer,
        record_count: int,
        last_offset_delta: int,
        base_offset: int,
        base_timestamp: int,
        append_time: int | None,
        min_offset: int,
        topic: str,
        partition: int,
        timestamp_type: int,
        leader_epoch: int,
        /,
    ) -> list[Any]: ...

    def decode_run(
        self,
        buffer: Buffer,
        position: int,
        min_offset: int,
        check: bool,
        topic: str,
        partition: int,
        timestamp_types: tuple[int, int],
        /,
    ) -> tuple[list[Any], int]: ...

    def sip_hash(self, key: Buffer, data: Buffer, /) -> bytes: ...

    def add_keys(
        self,
        table: bytearray | memoryview,
        sip_key: Buffer,
        section: Buffer,
        record_count: int,
        last_offset_delta: int,
        base_offset: int,
        min_offset: int,
        used: int,
        max_used: int,
        /,
    ) -> tuple[int, int]: ...

    def filter_records(
        self,
        table: Buffer,
        sip_key: Buffer,
        section: Buffer,
        record_count: int,
        last_offset_delta: int,
        base_offset: int,
        base_timestamp: int,
        end_offset: int,
        drop_tombstones: bool,
        horizon: int | None,
        force_horizon: bool,
        /,
    ) -> tuple[int, int, bool, bytes | None]: ...


def load(name: str) -> Codec:
    """The twin "c" or "python"; ImportError if the C twin was not built."""
    module = "_python" if name == "python" else "_codec"
    return cast(Codec, importlib.import_module(f"kraftlog.proto.records.{module}"))


def _choose() -> Codec:
    wanted = os.environ.get("KRAFTLOG_CODEC", "")
    if wanted not in ("", "c", "python"):
        raise ImportError(f"KRAFTLOG_CODEC={wanted!r} is neither c nor python")
    if wanted:
        return load(wanted)
    try:
        return load("c")
    except ImportError:
        return load("python")


current = _choose()
"""The active twin. Tests set it; nothing else does."""
