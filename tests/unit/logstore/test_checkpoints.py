"""Kafka's text files: read back what was written, and refuse anything damaged as a whole."""

import pytest

from kraftlog.logstore.checkpoints import (
    read_epoch_checkpoint,
    read_offset_checkpoint,
    read_partition_metadata,
    read_properties,
    write_epoch_checkpoint,
    write_offset_checkpoint,
    write_partition_metadata,
    write_properties,
)
from kraftlog.proto.uuids import uuid_from_text, uuid_to_text
from kraftlog.testing.filesystem import SimFileSystem

OFFSETS = {("orders", 0): 1042, ("a.b_c-d", 12): 0, ("orders", 10): (1 << 63) - 1}


@pytest.fixture
def fs() -> SimFileSystem:
    fs = SimFileSystem()
    fs.mkdir("/d")
    return fs


def test_offset_checkpoint_has_kafkas_format(fs: SimFileSystem) -> None:
    write_offset_checkpoint(fs, "/d/c", OFFSETS)
    assert fs.contents("/d/c") == b"0\n3\na.b_c-d 12 0\norders 0 1042\norders 10 9223372036854775807\n"
    assert read_offset_checkpoint(fs, "/d/c") == OFFSETS


def test_a_missing_checkpoint_is_empty(fs: SimFileSystem) -> None:
    assert read_offset_checkpoint(fs, "/d/c") == {}
    assert read_epoch_checkpoint(fs, "/d/c") == []


def test_a_missing_last_newline_is_no_damage(fs: SimFileSystem) -> None:
    fs.put("/d/c", b"0\n1\norders 0 7")
    assert read_offset_checkpoint(fs, "/d/c") == {("orders", 0): 7}


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"\n",
        b"0",
        b"0\n",
        b"1\n0\n",
        b"0\n2\norders 0 7\n",
        b"0\n0\norders 0 7\n",
        b"0\n1\norders 0 -7\n",
        b"0\n1\norders -1 7\n",
        b"0\n1\norders 0 9223372036854775808\n",
        b"0\n1\norders 0 99999999999999999999999999\n",
        b"0\n1\norders 2147483648 7\n",
        b"0\n1\norders 0\n",
        b"0\n1\norders 0 7 8\n",
        b"0\n1\norders 0 seven\n",
        b"0\n1\norders 0 7_0\n",
        "0\n1\norders 0 \u0667\n".encode(),
        b"0\n-1\n",
        b"\xff\xfe",
        bytes(1 << 20),
        b"garbage",
    ],
)
def test_a_damaged_checkpoint_is_worth_nothing(fs: SimFileSystem, content: bytes) -> None:
    """Half a checkpoint would silently give the other logs a recovery point of 0."""
    fs.put("/d/c", content)
    assert read_offset_checkpoint(fs, "/d/c") is None


def test_epoch_checkpoint_has_kafkas_format(fs: SimFileSystem) -> None:
    write_epoch_checkpoint(fs, "/d/e", [(0, 0), (3, 17)])
    assert fs.contents("/d/e") == b"0\n2\n0 0\n3 17\n"
    assert read_epoch_checkpoint(fs, "/d/e") == [(0, 0), (3, 17)]


@pytest.mark.parametrize("rows", [b"3 5\n3 6", b"3 5\n2 6", b"3 5\n4 4", b"-1 0\n1 1", b"1 x\n2 2"])
def test_epochs_out_of_order_are_damage(fs: SimFileSystem, rows: bytes) -> None:
    fs.put("/d/e", b"0\n2\n" + rows + b"\n")
    assert read_epoch_checkpoint(fs, "/d/e") is None


def test_partition_metadata_names_the_topic_id(fs: SimFileSystem) -> None:
    topic_id = bytes(range(16))
    write_partition_metadata(fs, "/d/partition.metadata", topic_id)
    assert fs.contents("/d/partition.metadata") == b"version: 0\ntopic_id: AAECAwQFBgcICQoLDA0ODw\n"
    assert read_partition_metadata(fs, "/d/partition.metadata") == topic_id


@pytest.mark.parametrize(
    "content", [b"", b"version: 1\ntopic_id: AAECAwQFBgcICQoLDA0ODw\n", b"version: 0\ntopic_id: x\n"]
)
def test_damaged_partition_metadata_names_none(fs: SimFileSystem, content: bytes) -> None:
    fs.put("/d/m", content)
    assert read_partition_metadata(fs, "/d/m") is None
    assert read_partition_metadata(fs, "/d/missing") is None


def test_ids_are_spelled_as_kafka_does() -> None:
    text = uuid_to_text(b"\xff" * 16)
    assert text == "_____________________w"
    assert uuid_from_text(text) == b"\xff" * 16
    for wrong in ("", "AAAA", "!" * 22, "A" * 30):
        with pytest.raises(ValueError, match=r".*"):
            uuid_from_text(wrong)


def test_properties_survive_a_round_trip_and_comments(fs: SimFileSystem) -> None:
    write_properties(fs, "/d/meta.properties", {"version": "1", "cluster.id": "a=b"})
    assert fs.contents("/d/meta.properties") == b"cluster.id=a=b\nversion=1\n"
    fs.put("/d/p", b"#\n#Mon\nversion=1\n node.id = 3 \nnonsense\n")
    assert read_properties(fs, "/d/p") == {"version": "1", "node.id": "3"}
    assert read_properties(fs, "/d/none") is None
