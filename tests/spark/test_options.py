"""Options of the Spark source: Kafka's words, one clear line for what is wrong."""

import pytest

from kraftlog.proto.errors import InvalidConfigError
from kraftlog.sdk.config import AdminConfig
from kraftlog.spark_connector.options import EARLIEST, LATEST, parse_options
from kraftlog.spark_connector.schema import COLUMN_TYPES, DEFAULT_COLUMNS

BASE = {"kafka.bootstrap.servers": "127.0.0.1:9092", "subscribe": "a"}


def test_defaults_are_those_of_spark_for_kafka() -> None:
    batch = parse_options(BASE, streaming=False)
    assert (batch.starting_offsets, batch.ending_offsets) == (EARLIEST, LATEST)
    assert batch.columns == DEFAULT_COLUMNS
    assert batch.fail_on_data_loss
    assert parse_options(BASE, streaming=True).starting_offsets == LATEST


@pytest.mark.parametrize("key", ["kafka.bootstrap.servers", "kraftlog.bootstrap.servers", "bootstrap.servers"])
def test_the_bootstrap_option_may_be_written_in_three_ways(key: str) -> None:
    options = parse_options({key: "h:1", "subscribe": "a, b,a"}, streaming=False)
    assert options.client["bootstrap_servers"] == "h:1"
    assert options.subscription.topics == ("a", "b")


def test_names_come_in_any_case() -> None:
    options = parse_options({**BASE, "STARTINGOFFSETS": '{"a":{"0":23,"1":-2}}'}, streaming=False)
    assert options.starting_offsets == {"a": {0: 23, 1: EARLIEST}}


def test_headers_and_columns() -> None:
    assert parse_options({**BASE, "includeHeaders": "true"}, streaming=False).columns == tuple(COLUMN_TYPES)
    assert parse_options({**BASE, "columns": "value,offset"}, streaming=False).columns == ("value", "offset")


@pytest.mark.parametrize(
    ("extra", "message"),
    [
        ({"startingOffset": "earliest"}, "did you mean 'startingOffsets'"),
        ({"assign": '{"a":[0]}'}, "exactly one of subscribe, assign"),
        ({"startingOffsets": "latest"}, "may not be latest"),
        ({"endingOffsets": "earliest"}, "may not be earliest"),
        ({"startingOffsets": "{"}, "is not valid: write earliest"),
        ({"startingOffsets": '{"a":{"0":true}}'}, "is no offset"),
        ({"startingOffsets": '{"a":{"0":-3}}'}, "is no offset"),
        ({"maxOffsetsPerTrigger": "5"}, "no meaning in a batch read"),
        ({"minPartitions": "0"}, "below the minimum 1"),
        ({"minPartitions": "many"}, "is not an integer"),
        ({"columns": "value,ofset"}, "did you mean 'offset'"),
        ({"columns": "value,value"}, "names a column twice"),
        ({"failOnDataLoss": "maybe"}, "is not a boolean"),
        ({"path": "/x"}, "have no path"),
    ],
)
def test_a_wrong_option_is_one_clear_line(extra: dict[str, str], message: str) -> None:
    with pytest.raises(InvalidConfigError, match=message) as caught:
        parse_options({**BASE, **extra}, streaming=False)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"subscribe": "a"}, "bootstrap.servers is missing"),
        ({"bootstrap.servers": "h:1"}, "found: none"),
        ({"bootstrap.servers": "h:1", "subscribe": " , "}, "names no topic"),
        ({"bootstrap.servers": "h:1", "assign": '{"a":[]}'}, "no list of numbers"),
        ({"bootstrap.servers": "h:1", "assign": "{}"}, "names no partition"),
        ({"bootstrap.servers": "h:1", "subscribePattern": "("}, "not a Python regular expression"),
    ],
)
def test_what_to_read_must_be_said(options: dict[str, str], message: str) -> None:
    with pytest.raises(InvalidConfigError, match=message):
        parse_options(options, streaming=False)


def test_streaming_limits() -> None:
    options = parse_options(
        {**BASE, "maxOffsetsPerTrigger": "5", "minOffsetsPerTrigger": "2", "maxTriggerDelay": "30s"}, streaming=True
    )
    assert (options.max_offsets_per_trigger, options.min_offsets_per_trigger) == (5, 2)
    assert options.max_trigger_delay_ms == 30_000
    with pytest.raises(InvalidConfigError, match="is not a duration"):
        parse_options({**BASE, "maxTriggerDelay": "soon"}, streaming=True)
    with pytest.raises(InvalidConfigError, match="no meaning in a streaming read"):
        parse_options({**BASE, "endingOffsets": "latest"}, streaming=True)


def test_options_of_the_client_go_to_the_client() -> None:
    """The rack, and TLS as people write it for Spark's Kafka source, and with our names; the client checks them."""
    java = parse_options(
        {
            **BASE,
            "kafka.client.rack": "site-a",
            "kafka.security.protocol": "SSL",
            "kafka.ssl.truststore.type": "PEM",
            "kafka.ssl.truststore.location": "/etc/CA.pem",
            "kafka.ssl.keystore.location": "/etc/Me.pem",
            "kafka.ssl.endpoint.identification.algorithm": "",
        },
        streaming=False,
    )
    ours = parse_options(
        {
            **BASE,
            "kraftlog.client.rack": "site-a",
            "kraftlog.security.protocol": "ssl",
            "kraftlog.ssl.cafile": "/etc/CA.pem",
            "kraftlog.ssl.certfile": "/etc/Me.pem",
            "kraftlog.ssl.check.hostname": "false",
        },
        streaming=True,
    )
    assert AdminConfig.of(java.client) == AdminConfig.of(ours.client)
    assert AdminConfig.of(java.client).ssl_cafile == "/etc/CA.pem"
    assert AdminConfig.of(java.client).client_rack == "site-a"


def test_no_text_shows_the_value_of_a_clients_option() -> None:
    """Somebody may pass on the passwords of a Java keystore: neither the options nor the error show them."""
    options = parse_options({**BASE, "kafka.ssl.key.password": "hunter2"}, streaming=False)
    assert "hunter2" not in repr(options)
    with pytest.raises(InvalidConfigError) as caught:
        AdminConfig.of(options.client)
    assert "ssl_key_password" in str(caught.value)
    assert "hunter2" not in str(caught.value)
