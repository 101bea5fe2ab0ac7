"""`spark.readStream.format("kraftlog")`: micro-batches, limits, checkpoints, data loss."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kraftlog import Admin

pytestmark = pytest.mark.slow

Read = Callable[..., Any]
Fill = Callable[..., None]


class Batches:
    """Collects what each micro-batch delivered."""

    def __init__(self) -> None:
        self.values: list[list[int]] = []

    def __call__(self, frame: Any, _: int) -> None:
        self.values.append(sorted(int(bytes(row.value)) for row in frame.select("value").collect()))

    @property
    def all(self) -> list[int]:
        return sorted(value for batch in self.values for value in batch)


def run_available(frame: Any, checkpoint: Path) -> Batches:
    """Run a query over what is there now."""
    batches = Batches()
    query = (
        frame.writeStream.foreachBatch(batches)
        .option("checkpointLocation", str(checkpoint))
        .trigger(availableNow=True)
        .start()
    )
    assert query.awaitTermination(120)
    return batches


def test_a_limit_cuts_the_backlog_into_batches(read_stream: Read, fill: Fill, tmp_path: Path) -> None:
    """maxOffsetsPerTrigger bounds every batch; together they hold each record once."""
    fill("stream-limit", 900)
    frame = read_stream(subscribe="stream-limit", startingOffsets="earliest", maxOffsetsPerTrigger="400")
    batches = run_available(frame, tmp_path)
    assert [len(batch) for batch in batches.values] == [400, 400, 100]
    assert batches.all == list(range(900))


def test_a_query_goes_on_from_its_checkpoint(read_stream: Read, fill: Fill, tmp_path: Path) -> None:
    """startingOffsets is for a new query only; a restart reads exactly what came since."""
    fill("stream-resume", 100)
    options = {"subscribe": "stream-resume", "startingOffsets": "earliest"}
    assert run_available(read_stream(**options), tmp_path).all == list(range(100))
    fill("stream-resume", 50, first=100)
    assert run_available(read_stream(**options), tmp_path).all == list(range(100, 150))
    assert run_available(read_stream(**options), tmp_path).all == []


def test_a_new_query_starts_at_the_latest_offset(read_stream: Read, fill: Fill, tmp_path: Path) -> None:
    fill("stream-latest", 20)
    assert run_available(read_stream(subscribe="stream-latest"), tmp_path).all == []
    fill("stream-latest", 5, first=20)
    assert run_available(read_stream(subscribe="stream-latest"), tmp_path).all == list(range(20, 25))


def test_a_running_query_sees_what_arrives(read_stream: Read, fill: Fill, tmp_path: Path) -> None:
    """Without a trigger the query polls; progress names the source's latest offsets."""
    fill("stream-live", 10)
    batches = Batches()
    frame = read_stream(subscribe="stream-live", startingOffsets="earliest")
    query = frame.writeStream.foreachBatch(batches).option("checkpointLocation", str(tmp_path)).start()
    try:
        query.processAllAvailable()
        fill("stream-live", 10, first=10)
        query.processAllAvailable()
        assert batches.all == list(range(20))
        assert query.exception() is None
    finally:
        query.stop()


def test_a_recreated_topic_is_reported_as_data_loss(
    read_stream: Read, fill: Fill, tmp_path: Path, bootstrap: str
) -> None:
    """failOnDataLoss=true stops the query with the reason; false goes on with what is there."""
    from pyspark.errors import StreamingQueryException

    fill("stream-loss", 90)
    options = {"subscribe": "stream-loss", "startingOffsets": "earliest"}
    run_available(read_stream(**options), tmp_path)
    with Admin(bootstrap_servers=bootstrap) as admin:
        admin.delete_topics(["stream-loss"])
    fill("stream-loss", 3)
    with pytest.raises(StreamingQueryException, match="the query stands at offset 30, but the log ends at 1"):
        run_available(read_stream(**options), tmp_path)
