"""Batch read of a topic by Spark, for both sides: `sum(length(value))` over all records, after one warm-up run.

    python benchmarks/spark_read.py kraftlog|kafka --bootstrap H:P --topic T --count N --size S --runs R

Prints one JSON line: {"seconds": [...]}. The Kafka side uses Spark's own connector from Maven Central; its jars come
from `$PEERS_HOME/spark-lib` (`benchmarks/run.py` fetches them).
"""

import argparse
import json
import time
from pathlib import Path

from peers.kafka import peers_home
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sql

from kraftlog.spark_connector.session import configure_environment

# of what Maven brings, only these are not among PySpark's own jars
CONNECTOR_JARS = (
    "spark-sql-kafka-0-10_2.13-",
    "spark-token-provider-kafka-0-10_2.13-",
    "kafka-clients-",
    "commons-pool2-",
)


def session(side: str) -> SparkSession:
    configure_environment()
    builder = (
        SparkSession.builder.master("local[2]")
        .appName(f"benchmark {side}")
        .config("spark.driver.memory", "4g")
        .config("spark.ui.enabled", "false")
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.log.level", "ERROR")
    )
    if side == "kafka":
        jars = [str(jar) for jar in sorted(jar_folder().glob("*.jar")) if jar.name.startswith(CONNECTOR_JARS)]
        builder = builder.config("spark.jars", ",".join(jars))
    return builder.getOrCreate()


def jar_folder() -> Path:
    return peers_home() / "spark-lib"


def frame(spark: SparkSession, side: str, options: argparse.Namespace) -> DataFrame:
    return (
        spark.read.format(side)
        .option("kafka.bootstrap.servers", options.bootstrap)
        .option("subscribe", options.topic)
        .option("startingOffsets", "earliest")
        .load()
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("side", choices=("kraftlog", "kafka"))
    parser.add_argument("--bootstrap", required=True)
    parser.add_argument("--topic", required=True)
    parser.add_argument("--count", type=int, required=True)
    parser.add_argument("--size", type=int, required=True)
    parser.add_argument("--runs", type=int, default=3)
    options = parser.parse_args()
    spark = session(options.side)
    seconds = []
    for run in range(options.runs + 1):
        started = time.perf_counter()
        row = frame(spark, options.side, options).agg(sql.count("*"), sql.sum(sql.length("value"))).collect()[0]
        if run:
            seconds.append(round(time.perf_counter() - started, 3))
        if (row[0], row[1]) != (options.count, options.count * options.size):
            raise SystemExit(f"read {row[0]} records with {row[1]} bytes of {options.count} of {options.size}")
    spark.stop()
    print(json.dumps({"seconds": seconds}))


if __name__ == "__main__":
    main()
