"""`spark.read.format("kraftlog")` in a real Spark session against a real node."""

import datetime
from collections.abc import Callable
from typing import Any

import pytest

pytestmark = pytest.mark.slow

Read = Callable[..., Any]
Fill = Callable[..., None]


def values(frame: Any) -> list[int]:
    return sorted(int(bytes(row.value)) for row in frame.select("value").collect())


def test_rows_have_kafkas_schema_and_every_record_comes_once(read: Read, fill: Fill) -> None:
    fill("batch-all", 1000)
    frame = read(subscribe="batch-all")
    assert frame.dtypes == [
        ("key", "binary"),
        ("value", "binary"),
        ("topic", "string"),
        ("partition", "int"),
        ("offset", "bigint"),
        ("timestamp", "timestamp"),
        ("timestampType", "int"),
    ]
    rows = frame.collect()
    assert sorted(int(bytes(row.value)) for row in rows) == list(range(1000))
    for row in rows:
        number = int(bytes(row.value))
        assert bytes(row.key) == f"k{number % 5}".encode()
        assert (row.topic, row.partition, row.offset) == ("batch-all", number % 3, number // 3)
        assert row.timestampType == 0
    first = next(row for row in rows if bytes(row.value) == b"0")
    assert first.timestamp.astimezone(datetime.UTC) == datetime.datetime.fromtimestamp(1000, datetime.UTC)


def test_headers_come_on_request(read: Read, fill: Fill) -> None:
    fill("batch-headers", 3, 1)
    rows = read(subscribe="batch-headers", includeHeaders="true").orderBy("offset").collect()
    assert [[(h.key, bytes(h.value)) for h in row.headers] for row in rows] == [
        [("number", str(i).encode())] for i in range(3)
    ]


def test_offsets_bound_what_is_read(read: Read, fill: Fill) -> None:
    """Ends are exclusive and cut inside a batch; -2 and -1 stand for earliest and latest."""
    fill("batch-bounds", 30, 2)
    frame = read(
        subscribe="batch-bounds",
        startingOffsets='{"batch-bounds":{"0":3,"1":-2}}',
        endingOffsets='{"batch-bounds":{"0":5,"1":-1}}',
    )
    rows = [(row.partition, row.offset) for row in frame.collect()]
    assert sorted(rows) == [(0, 3), (0, 4)] + [(1, offset) for offset in range(15)]


def test_assign_reads_only_these_partitions(read: Read, fill: Fill) -> None:
    fill("batch-assign", 30)
    frame = read(assign='{"batch-assign":[0,2]}')
    assert {row.partition for row in frame.collect()} == {0, 2}


def test_a_pattern_reads_all_topics_that_match_it(read: Read, fill: Fill) -> None:
    fill("pattern-a", 10, 1)
    fill("pattern-b", 10, 1)
    assert {row.topic for row in read(subscribePattern="pattern-.*").collect()} == {"pattern-a", "pattern-b"}


def test_min_partitions_splits_into_tasks_that_run_in_parallel(read: Read, fill: Fill) -> None:
    fill("batch-split", 3000)
    frame = read(subscribe="batch-split", minPartitions="9")
    assert frame.rdd.getNumPartitions() == 9
    assert values(frame) == list(range(3000))


def test_small_partitions_share_tasks(read: Read, fill: Fill) -> None:
    fill("batch-share", 60, 12)
    frame = read(subscribe="batch-share", maxPartitions="4")
    assert frame.rdd.getNumPartitions() <= 4
    assert values(frame) == list(range(60))


def test_columns_and_user_schemas_choose_what_travels(read: Read, fill: Fill, spark: Any, bootstrap: str) -> None:
    fill("batch-columns", 10, 1)
    assert read(subscribe="batch-columns", columns="offset,value").dtypes == [("offset", "bigint"), ("value", "binary")]
    frame = (
        spark.read.format("kraftlog")
        .schema("value binary, offset bigint")
        .option("bootstrap.servers", bootstrap)
        .option("subscribe", "batch-columns")
        .load()
    )
    assert [(bytes(row.value), row.offset) for row in frame.orderBy("offset").collect()] == [
        (str(i).encode(), i) for i in range(10)
    ]


def test_an_empty_topic_is_an_empty_frame(read: Read, fill: Fill) -> None:
    fill("batch-empty", 0)
    assert read(subscribe="batch-empty").count() == 0


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"subscribe": "no-such-topic"}, "no-such-topic"),
        ({"subscribe": "batch-wrong", "startingOffset": "earliest"}, "did you mean 'startingOffsets'"),
        ({"subscribe": "batch-wrong", "startingOffsets": '{"batch-wrong":{"0":0}}'}, "missing: batch-wrong-1"),
        ({"assign": '{"batch-wrong":[7]}'}, "names batch-wrong-7, but the topic has 3 partitions"),
    ],
)
def test_mistakes_are_told_in_one_clear_line(read: Read, fill: Fill, options: dict[str, str], message: str) -> None:
    from pyspark.errors import PySparkException

    fill("batch-wrong", 3)
    with pytest.raises(PySparkException) as caught:
        read(**options).count()
    told = [line for line in str(caught.value).splitlines() if line.startswith("kraftlog.proto.errors.")]
    assert told
    assert message in told[0]


def test_a_wrong_type_in_a_user_schema_is_refused(spark: Any, bootstrap: str, fill: Fill) -> None:
    from pyspark.errors import PySparkException

    fill("batch-schema", 1, 1)
    frame = (
        spark.read.format("kraftlog")
        .schema("value string")
        .option("bootstrap.servers", bootstrap)
        .option("subscribe", "batch-schema")
    )
    with pytest.raises(PySparkException, match="column value has type string, but format kraftlog gives binary"):
        frame.load().count()
