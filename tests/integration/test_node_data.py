"""The data path of a node over real gRPC: produce and fetch, unary and streamed, with generated and hand-framed clients."""

import asyncio
from pathlib import Path

import pytest

from kraftlog.proto import broker_pb2, hotpath
from kraftlog.proto.errors import ErrorCode, InvalidRequestError
from kraftlog.proto.records import CompressionType, decode_records
from tests.integration.node_harness import (
    RawClient,
    batch,
    client_of,
    latest,
    position,
    produce_request,
    running_node,
    stubs,
    values_of,
)


async def fetch_all(client: RawClient, topic: str, partition: int = 0) -> list[bytes | None]:
    """Everything in the partition now."""
    request = hotpath.FetchRequest(partitions=[position(topic, partition=partition)], max_bytes=1 << 22)
    found: list[bytes | None] = []
    while True:
        [chunk] = (await client.fetch(request)).partitions
        assert chunk.error_code == 0, chunk.error_message
        if not len(chunk.records):
            return found
        found += values_of(chunk)
        request.partitions = [position(topic, chunk.next_offset, partition=partition)]


@pytest.mark.parametrize(("policy", "word"), [("ack", "fsync"), ("interval", "memory")])
async def test_what_is_produced_is_fetched(tmp_path: Path, policy: str, word: str) -> None:
    """acks 0, 1 and all, with the durability that each answer claims; offsets count up."""
    async with running_node(tmp_path / "data") as node, client_of(node) as client:
        await client.create_topic("orders", flush_policy=policy)
        answers = [await client.produce(produce_request("orders", batch(b"a", b"b"), acks=acks)) for acks in (-1, 1, 0)]
        assert [(answer.error_code, answer.base_offset, answer.durability) for answer in answers] == [
            (0, 0, f"quorum-{word}"),
            (0, 2, f"leader-{word}"),
            (0, 4, "none"),
        ]
        request = hotpath.FetchRequest(
            max_wait_ms=10_000, min_bytes=200, max_bytes=1 << 20, partitions=[position("orders")]
        )
        [chunk] = (await client.fetch(request)).partitions
        assert values_of(chunk) == [b"a", b"b"] * 3
        assert (chunk.high_watermark, chunk.next_offset, chunk.log_start_offset) == (6, 6, 0)


async def test_generated_clients_work(tmp_path: Path) -> None:
    """Clients in any language use what protoc makes of broker.proto: unary and streams."""
    async with running_node(tmp_path / "data") as node, client_of(node) as client, stubs(node.address) as stub:
        await client.create_topic("orders")
        part = broker_pb2.PartitionRecords(topic="orders", partition=0, records=batch(b"a", b"b"))
        answer = await stub.broker.Produce(broker_pb2.ProduceRequest(acks=-1, partitions=[part]))
        assert answer.partitions[0].error_code == 0

        produce = stub.broker.ProduceStream()
        await produce.write(broker_pb2.ProduceRequest(correlation_id=7, acks=-1, partitions=[part]))
        streamed = await produce.read()
        assert (streamed.correlation_id, streamed.partitions[0].base_offset) == (7, 2)
        assert streamed.credit_bytes > 0
        await produce.done_writing()

        fetch = stub.broker.FetchStream()
        place = broker_pb2.FetchPosition(topic="orders", generation=1, current_leader_epoch=-1, last_fetched_epoch=-1)
        params = broker_pb2.FetchRequest(max_wait_ms=100, min_bytes=1, max_bytes=1 << 20)
        await fetch.write(broker_pb2.FetchControl(params=params, set=[place], credit_bytes=1 << 20))
        received = await fetch.read()
        records = decode_records(received.partitions[0].records)
        assert [(record.offset, record.value) for record in records] == [(0, b"a"), (1, b"b"), (2, b"a"), (3, b"b")]
        await fetch.done_writing()

        unary = await stub.broker.Fetch(broker_pb2.FetchRequest(max_bytes=1 << 20, partitions=[place]))
        assert unary.partitions[0].records == received.partitions[0].records


async def test_a_produce_stream_is_pipelined_and_keeps_its_order(tmp_path: Path) -> None:
    """Small and large requests of one stream take effect in the order of sending; each is answered once."""
    async with running_node(tmp_path / "data") as node, client_of(node) as client:
        await client.create_topic("orders", partitions=2)
        stream = client.stream("ProduceStream")
        large = bytes(200_000)
        sent: list[list[bytes]] = [[], []]
        for number in range(40):
            value = b"%d" % number + (large if number % 3 == 0 else b"")
            sent[number % 2].append(value)
            request = produce_request("orders", batch(value), partition=number % 2, correlation_id=number)
            await stream.send(hotpath.encode(request))
        await stream.finish()
        answers = []
        while (message := await stream.receive()) is not None:
            answers.append(hotpath.decode_produce_response(message))
        assert sorted(answer.correlation_id for answer in answers) == list(range(40))
        assert all(answer.partitions[0].error_code == 0 for answer in answers)
        for partition in range(2):
            assert await fetch_all(client, "orders", partition) == sent[partition]


async def test_a_producer_without_acks_gets_no_answers(tmp_path: Path) -> None:
    """acks=0 on a stream: nothing comes back, and later requests are answered."""
    async with running_node(tmp_path / "data") as node, client_of(node) as client:
        await client.create_topic("orders")
        stream = client.stream("ProduceStream")
        for number in range(5):
            await stream.send(hotpath.encode(produce_request("orders", batch(b"x"), acks=0, correlation_id=number)))
        await stream.send(hotpath.encode(produce_request("orders", batch(b"y"), acks=1, correlation_id=9)))
        answer = await stream.receive()
        assert answer is not None
        decoded = hotpath.decode_produce_response(answer)
        assert (decoded.correlation_id, decoded.partitions[0].base_offset) == (9, 5)
        await stream.finish()
        assert await stream.receive() is None


async def test_a_fetch_stream_follows_new_data_and_seeks(tmp_path: Path) -> None:
    """Pull by credit over several partitions; a newer generation moves the position."""
    async with running_node(tmp_path / "data") as node, client_of(node) as client:
        await client.create_topic("orders", partitions=3)
        stream = client.stream("FetchStream")
        params = hotpath.FetchRequest(max_wait_ms=100, min_bytes=1, max_bytes=1 << 20)
        places = [position("orders", partition=number) for number in range(3)]
        await stream.send(hotpath.encode(hotpath.FetchControl(params=params, set=places, credit_bytes=1 << 20)))
        for number in (2, 0, 1):
            await client.produce(produce_request("orders", batch(b"v%d" % number), partition=number))
            message = await stream.receive()
            assert message is not None
            [chunk] = hotpath.decode_fetch_chunk(message).partitions
            assert (chunk.partition, values_of(chunk), chunk.next_offset) == (number, [b"v%d" % number], 1)
        moved = hotpath.FetchControl(set=[position("orders", 0, partition=2, generation=2)])
        await stream.send(hotpath.encode(moved))
        message = await stream.receive()
        assert message is not None
        [chunk] = hotpath.decode_fetch_chunk(message).partitions
        assert (chunk.partition, chunk.generation, values_of(chunk)) == (2, 2, [b"v2"])
        await stream.finish()
        assert await stream.receive() is None


async def test_a_range_is_read_to_its_end_and_no_further(tmp_path: Path) -> None:
    """end_offset is exclusive: the batch that holds the record before it is the last; then the position is gone."""
    async with running_node(tmp_path / "data") as node, client_of(node) as client:
        await client.create_topic("orders")
        for number in range(4):
            await client.produce(produce_request("orders", batch(b"%d" % number, b"x")))
        place = position("orders", 1)
        place.end_offset = 5
        [chunk] = (await client.fetch(hotpath.FetchRequest(max_bytes=1 << 20, partitions=[place]))).partitions
        assert (values_of(chunk), chunk.next_offset) == ([b"0", b"x", b"1", b"x", b"2", b"x"], 6)
        stream = client.stream("FetchStream")
        empty = position("orders", 8, generation=2)
        empty.end_offset = 8
        control = hotpath.FetchControl(params=hotpath.FetchRequest(), set=[place], credit_bytes=1 << 20)
        await stream.send(hotpath.encode(control))
        first = await stream.receive()
        await stream.send(hotpath.encode(hotpath.FetchControl(set=[empty])))
        second = await stream.receive()
        assert first is not None
        assert second is not None
        chunks = [hotpath.decode_fetch_chunk(message).partitions[0] for message in (first, second)]
        assert [(chunk.generation, chunk.next_offset, len(chunk.records) > 0) for chunk in chunks] == [
            (1, 6, True),
            (2, 8, False),
        ]
        await stream.finish()


async def test_a_long_poll_ends_by_the_brokers_deadline_or_by_data(tmp_path: Path) -> None:
    """max_wait_ms without data gives an empty answer; data that come meanwhile end the wait."""
    async with running_node(tmp_path / "data") as node, client_of(node) as client:
        await client.create_topic("orders")
        loop = asyncio.get_running_loop()
        begin = loop.time()
        request = hotpath.FetchRequest(max_wait_ms=100, min_bytes=1, partitions=[position("orders")])
        [chunk] = (await client.fetch(request)).partitions
        assert not len(chunk.records)
        assert 0.09 <= loop.time() - begin < 5
        request.max_wait_ms = 30_000
        waiting = asyncio.create_task(client.fetch(request))
        await client.produce(produce_request("orders", batch(b"x")))
        [chunk] = (await asyncio.wait_for(waiting, 10)).partitions
        assert values_of(chunk) == [b"x"]


async def test_a_repeated_batch_is_written_once(tmp_path: Path) -> None:
    """Idempotence: the same producer id, epoch and sequence is answered with the first offsets; a gap is refused."""
    async with running_node(tmp_path / "data") as node, client_of(node) as client:
        await client.create_topic("orders")
        init = broker_pb2.InitProducerIdRequest(producer_id=-1, producer_epoch=-1)
        ids = [await client.call("Broker/InitProducerId", init, broker_pb2.InitProducerIdResponse) for _ in range(3)]
        assert len({each.producer_id for each in ids}) == 3
        me = ids[0].producer_id
        first = batch(b"a", b"b", base_sequence=0, producer_id=me, producer_epoch=0)
        for _ in range(3):
            answer = await client.produce(produce_request("orders", first))
            assert (answer.error_code, answer.base_offset) == (0, 0)
        gap = await client.produce(
            produce_request("orders", batch(b"d", base_sequence=3, producer_id=me, producer_epoch=0))
        )
        assert gap.error_code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
        following = await client.produce(
            produce_request("orders", batch(b"c", base_sequence=2, producer_id=me, producer_epoch=0))
        )
        assert (following.error_code, following.base_offset) == (0, 2)
        assert await fetch_all(client, "orders") == [b"a", b"b", b"c"]


async def test_offsets_are_listed_by_place_and_time(tmp_path: Path) -> None:
    """-1 latest, -2 earliest, -3 largest timestamp, else the first offset at or after a time; -1 past the end."""
    async with running_node(tmp_path / "data") as node, client_of(node) as client:
        await client.create_topic("orders")

        async def listed(timestamp: int) -> tuple[int, int]:
            response = await client.call(
                "Broker/ListOffsets", latest("orders", timestamp=timestamp), broker_pb2.ListOffsetsResponse
            )
            [result] = response.partitions
            return result.error_code, result.offset

        assert [await listed(timestamp) for timestamp in (-1, -2, -3, 0)] == [(0, 0), (0, 0), (0, -1), (0, -1)]
        for _ in range(3):
            await client.produce(produce_request("orders", batch(b"x")))
        assert [await listed(timestamp) for timestamp in (-1, -2, 0)] == [(0, 3), (0, 0), (0, 0)]
        assert (await listed(-3))[1] in range(3)
        assert await listed(1 << 50) == (0, -1)
        assert (await listed(-9))[0] == ErrorCode.INVALID_REQUEST


async def test_a_topic_may_ask_for_a_codec(tmp_path: Path) -> None:
    """compression.type other than producer: told in the metadata, and other batches are refused."""
    async with running_node(tmp_path / "data") as node, client_of(node) as client:
        await client.create_topic("orders", compression_type="zstd")
        request = broker_pb2.MetadataRequest(topics=["orders"])
        metadata = await client.call("Broker/Metadata", request, broker_pb2.MetadataResponse)
        assert metadata.topics[0].compression_type == "zstd"
        refused = await client.produce(produce_request("orders", batch(b"x" * 100)))
        assert refused.error_code != 0
        assert "zstd" in refused.error_message
        taken = await client.produce(produce_request("orders", batch(b"x" * 100, compression=CompressionType.ZSTD)))
        assert (taken.error_code, taken.base_offset) == (0, 0)


async def test_a_producer_that_ignores_its_credit_is_cut_off(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A request that exceeds the window of unanswered bytes ends the stream with a named error."""
    from kraftlog.server.apis import produce

    monkeypatch.setattr(produce, "WINDOW_BYTES", 100_000)
    async with running_node(tmp_path / "data") as node, client_of(node) as client:
        await client.create_topic("orders")
        stream = client.stream("ProduceStream")
        await stream.send(hotpath.encode(produce_request("orders", batch(bytes(150_000)))))
        with pytest.raises(InvalidRequestError, match="credit"):
            await stream.receive()
        good = await client.produce(produce_request("orders", batch(b"x")))
        assert good.error_code == 0
