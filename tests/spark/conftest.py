"""One Spark session and one kraftlog node for all Spark tests: a session takes longer to start than they to run."""

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import pytest

from kraftlog import Admin, Producer
from kraftlog.sdk.types import NewTopic
from kraftlog.spark_connector.session import configure_environment
from kraftlog.testing import cluster

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

Fill = Callable[..., None]


@pytest.fixture(scope="session")
def spark() -> Iterator["SparkSession"]:
    configure_environment()
    from pyspark.sql import SparkSession

    session = (
        SparkSession.builder.master("local[2]")
        .config("spark.ui.enabled", "false")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.log.level", "ERROR")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.sql.session.timeZone", "UTC")
        .getOrCreate()
    )
    yield session
    session.stop()


@pytest.fixture(scope="session")
def bootstrap(spark: "SparkSession") -> Iterator[str]:
    """Depends on `spark`: the JVM is started by a fork, which is best done before this process uses gRPC."""
    with cluster() as running:
        yield running.bootstrap_servers


@pytest.fixture
def fill(bootstrap: str) -> Fill:
    """fill(topic, count, partitions=3): records with value b"<i>", key b"k<i % 5>", timestamp 1_000_000 + i."""

    def run(topic: str, count: int, partitions: int = 3, *, first: int = 0) -> None:
        with Admin(bootstrap_servers=bootstrap) as admin:
            if topic not in admin.list_topics():
                admin.create_topics([NewTopic(name=topic, num_partitions=partitions)])
        with Producer(bootstrap_servers=bootstrap) as producer:
            for i in range(first, first + count):
                producer.send(
                    topic,
                    str(i).encode(),
                    key=f"k{i % 5}".encode(),
                    headers=[("number", str(i).encode())],
                    timestamp_ms=1_000_000 + i,
                    partition=i % partitions,
                )

    return run


@pytest.fixture
def read(spark: "SparkSession", bootstrap: str) -> Callable[..., "DataFrame"]:
    """read(subscribe="t", startingOffsets=...): a batch DataFrame."""

    def run(**options: str) -> "DataFrame":
        reader = spark.read.format("kraftlog").option("kafka.bootstrap.servers", bootstrap)
        return reader.options(**options).load()

    return run


@pytest.fixture
def read_stream(spark: "SparkSession", bootstrap: str) -> Callable[..., "DataFrame"]:
    """read_stream(subscribe="t"): a streaming DataFrame."""

    def run(**options: str) -> "DataFrame":
        reader = spark.readStream.format("kraftlog").option("kafka.bootstrap.servers", bootstrap)
        return reader.options(**options).load()

    return run
