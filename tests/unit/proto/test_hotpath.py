"""Hand-framed messages: no copies of records, and the rules of protobuf that they keep. Equality with the generated
classes is a property test."""

import pytest

from kraftlog.proto import broker_pb2, hotpath
from kraftlog.proto.errors import InvalidRequestError
from kraftlog.proto.hotpath import (
    AbortedTransaction,
    FetchChunk,
    FetchControl,
    FetchPosition,
    FetchRequest,
    PartitionChunk,
    PartitionRecords,
    ProduceRequest,
    ProduceResponse,
    ProduceResult,
    TopicPartition,
)


def joined(message: hotpath.Message) -> bytes:
    return b"".join(hotpath.encode(message))


def test_record_buffers_are_passed_on_uncopied() -> None:
    """A megabyte of records is a piece of its own: the very object that the caller gave."""
    one, two = bytes(1 << 20), bytearray(5000)
    pieces = hotpath.encode(
        ProduceRequest(partitions=[PartitionRecords("t", 1, one), PartitionRecords("t", 2, [two, two])])
    )
    assert any(piece is one for piece in pieces)
    assert sum(piece is two for piece in pieces) == 2
    assert len(pieces) == 5


def test_decoded_records_are_views_into_the_message() -> None:
    data = joined(ProduceRequest(partitions=[PartitionRecords("t", 1, b"records")]))
    records = hotpath.decode_produce_request(data).partitions[0].records
    assert isinstance(records, memoryview)
    assert records.obj is data
    assert records == b"records"


@pytest.mark.parametrize("wrap", [bytes, bytearray, memoryview, lambda data: memoryview(b"x" + data)[1:]])
def test_messages_are_decoded_from_any_buffer(wrap: type[bytes]) -> None:
    data = joined(ProduceRequest(7, -1, 30_000, [PartitionRecords("orders", 3, b"records")], "txn"))
    assert hotpath.decode_produce_request(wrap(data)) == ProduceRequest(
        7, -1, 30_000, [PartitionRecords("orders", 3, memoryview(b"records"))], "txn"
    )


def test_every_message_round_trips() -> None:
    result = ProduceResult("t", 1, 2, "text", 3, -1, 4, "quorum-fsync")
    response = ProduceResponse(9, [result, ProduceResult()], 5, 1 << 40)
    assert hotpath.decode_produce_response(joined(response)) == response
    request = FetchRequest(500, 1, 1 << 20, 1, [FetchPosition("t", 1, 100, 2, 3, -1, -1, 200)])
    assert hotpath.decode_fetch_request(joined(request)) == request
    control = FetchControl(request, [FetchPosition("u", 2)], [TopicPartition("v", 3)], 77)
    assert hotpath.decode_fetch_control(joined(control)) == control
    assert hotpath.decode_fetch_control(joined(FetchControl())).params is None
    chunk = PartitionChunk("t", 1, 2, 3, "e", 4, 5, 6, [AbortedTransaction(7, 8)], memoryview(b"r"), -1, 9, 10)
    assert hotpath.decode_fetch_chunk(joined(FetchChunk([chunk]))) == FetchChunk([chunk])


def test_zero_fields_take_no_bytes() -> None:
    assert hotpath.encode(ProduceRequest()) == [b""]
    assert joined(FetchControl(params=FetchRequest())) == b"\x0a\x00"
    assert joined(ProduceRequest(partitions=[PartitionRecords()])) == b"\x22\x00"
    assert joined(PartitionRecords(records=[b"", b""])) == b""


def test_unknown_fields_are_skipped() -> None:
    """A later version may add fields of every wire type."""
    known = joined(ProduceRequest(5))
    unknown = b"\xa0\x06\x96\x01" + b"\xa1\x06" + bytes(8) + b"\xa2\x06\x03abc" + b"\xa5\x06" + bytes(4)
    assert (
        hotpath.decode_produce_request(unknown + known)
        == hotpath.decode_produce_request(known + unknown)
        == ProduceRequest(5)
    )


def test_known_field_of_another_wire_type_is_skipped() -> None:
    assert hotpath.decode_produce_request(b"\x0a\x02hi\x20\x05") == ProduceRequest()


def test_the_last_scalar_wins_and_messages_merge() -> None:
    data = joined(FetchControl(params=FetchRequest(1, 2))) + joined(
        FetchControl(params=FetchRequest(9), credit_bytes=1)
    )
    data += joined(FetchControl(credit_bytes=2))
    assert hotpath.decode_fetch_control(data) == FetchControl(params=FetchRequest(9, 2), credit_bytes=2)
    assert broker_pb2.FetchControl.FromString(data).params.min_bytes == 2


@pytest.mark.parametrize(
    "data",
    [
        b"\x08",  # a tag without its value
        b"\x08\x80",  # a cut varint
        b"\x08" + b"\x80" * 10 + b"\x01",  # an endless one
        b"\x22\x05\x0a",  # a message past the end
        b"\x22\x03\x0a\x05a",  # a string past its message, within the buffer's end
        b"\x2a\x02\xff\xfe",  # no UTF-8
        b"\x2a\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01",  # a length of 2^64 - 1
        b"\x00\x01",  # field number 0
        b"\xa3\x06\xa4\x06",  # a group
        b"\xa6\x06",  # wire type 6
        b"\xa1\x06\x00",  # fixed64 cut
        b"\xa2\x06\x05a",  # unknown bytes cut
        b"\xf8\xff\xff\xff\x1f\x00",  # a tag of more than 32 bits, of a field that could be skipped
    ],
)
def test_malformed_message_is_an_invalid_request(data: bytes) -> None:
    with pytest.raises(InvalidRequestError, match="malformed ProduceRequest of"):
        hotpath.decode_produce_request(data)
