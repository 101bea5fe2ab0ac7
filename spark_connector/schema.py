"""The row schema of a topic in Spark: that of Spark's own Kafka source, so that jobs port by the format name."""

from collections.abc import Sequence

COLUMN_TYPES = {
    "key": "binary",
    "value": "binary",
    "topic": "string",
    "partition": "int",
    "offset": "bigint",
    "timestamp": "timestamp",
    "timestampType": "int",
    "headers": "array<struct<key:string,value:binary>>",
}
"""Column name to Spark type, in Kafka's order. `headers` comes only with `includeHeaders` or when it is asked for."""

DEFAULT_COLUMNS = tuple(name for name in COLUMN_TYPES if name != "headers")


def ddl(columns: Sequence[str]) -> str:
    """The schema of these columns as Spark DDL."""
    return ", ".join(f"{name} {COLUMN_TYPES[name]}" for name in columns)
