"""Spark reads from a cluster that asks for certificates: the driver and the tasks, and what is told if they do not get in."""

from pathlib import Path
from typing import Any

import pytest

from kraftlog import Admin, Producer
from kraftlog.testing import cluster
from kraftlog.testing.certificates import Authority

pytestmark = pytest.mark.slow

OURS = Authority.create("ours")
NODE = OURS.issue("node-1", hosts=("127.0.0.1",))
SPARK = OURS.issue("spark")


def test_a_read_with_certificates(spark: Any, tmp_path: Path) -> None:
    cafile = tmp_path / "ca.pem"
    cafile.write_bytes(OURS.pem)
    keystore = SPARK.keystore(tmp_path / "spark.pem")
    config = {
        "listeners": "SSL://127.0.0.1:0",
        "ssl.keystore.location": str(NODE.keystore(tmp_path / "node.pem")),
        "ssl.truststore.location": str(cafile),
        "ssl.client.auth": "required",
    }
    with cluster(config=config) as running:
        client = {
            "bootstrap.servers": running.bootstrap_servers,
            "security.protocol": "SSL",
            "ssl.truststore.location": str(cafile),
            "ssl.keystore.location": str(keystore),
        }
        with Admin(client) as admin:
            admin.create_topics(["secured"])
        with Producer(client) as producer:
            for number in range(100):
                producer.send("secured", str(number).encode())
        options = {f"kafka.{key}": value for key, value in client.items()}
        frame = spark.read.format("kraftlog").options(subscribe="secured", **options).load()
        assert sorted(int(bytes(row.value)) for row in frame.collect()) == list(range(100))
        del options["kafka.ssl.keystore.location"]
        with pytest.raises(Exception, match="does not accept clients without a certificate"):
            spark.read.format("kraftlog").options(subscribe="secured", **options).load().collect()
