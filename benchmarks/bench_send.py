"""What one `Producer.send` call costs the caller, without any broker: `python benchmarks/bench_send.py`.

The network is replaced by one that acknowledges everything at once, so that the figures show the client alone: first
the call by itself (nothing leaves the buffer meanwhile), then with the background loop building and "sending" batches,
which competes for the interpreter lock.
"""

import argparse
import asyncio
import time
from collections.abc import Callable
from functools import partial

import kraftlog
from kraftlog import Producer
from kraftlog.proto import broker_pb2
from kraftlog.proto.hotpath import ProduceResponse, ProduceResult, decode_produce_request, encode
from kraftlog.proto.seams import Payload

MIB = 1024 * 1024


class NullNetwork:
    """A broker of one topic that says yes."""

    def __init__(self, partitions: int) -> None:
        self.partitions = partitions
        self.requests = 0
        self.bytes = 0

    def connect(self, address: str) -> "NullNetwork":
        return self

    async def unary(self, method: str, request: Payload, *, timeout_ms: float) -> bytes:
        if method.endswith("/InitProducerId"):
            return broker_pb2.InitProducerIdResponse(producer_id=1).SerializeToString()
        response = broker_pb2.MetadataResponse(cluster_id="null", controller_id=1)
        response.brokers.add(node_id=1, host="null", port=1)
        topic = response.topics.add(name="t", topic_id=b"t" * 16)
        for partition in range(self.partitions):
            topic.partitions.add(partition=partition, leader_id=1)
        return response.SerializeToString()

    def stream(self, method: str) -> "NullStream":
        return NullStream(self)

    async def close(self) -> None:
        return None


class NullStream:
    def __init__(self, network: NullNetwork) -> None:
        self._network = network
        self._answers: asyncio.Queue[bytes | None] = asyncio.Queue()

    async def send(self, message: Payload) -> None:
        data = message if isinstance(message, bytes) else b"".join(message)
        request = decode_produce_request(data)
        self._network.requests += 1
        self._network.bytes += len(data)
        results = [ProduceResult(p.topic, p.partition, base_offset=0) for p in request.partitions]
        self._answers.put_nowait(b"".join(encode(ProduceResponse(request.correlation_id, results))))

    async def receive(self) -> bytes | None:
        return await self._answers.get()

    async def finish(self) -> None:
        return None

    def cancel(self) -> None:
        return None


def measure(name: str, count: int, producer: Producer, send: Callable[[], object]) -> None:
    send()
    producer.flush()
    started, started_cpu = time.perf_counter(), time.thread_time()
    for _ in range(count):
        send()
    called_cpu = time.thread_time()
    producer.flush()
    ended = time.perf_counter()
    call_us, record_us = 1e6 * (called_cpu - started_cpu) / count, 1e6 * (ended - started) / count
    print(f"{name:<50} {call_us:6.2f} us CPU a call {record_us:8.2f} us a record")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=300_000)
    count = parser.parse_args().count
    print(f"codec {kraftlog.codec}, {count} records a line")
    for size in (100, 1_000):
        value, key = b"x" * size, b"key"
        held = {"buffer_memory": 4 * size * count + 64 * MIB, "linger_ms": 60_000, "delivery_timeout_ms": 200_000}
        for label, options, partitions in (
            ("call alone", dict(**held, batch_size=held["buffer_memory"]), 1),
            ("with the loop at work", {}, 1),
            ("with the loop at work, 8 partitions", {}, 8),
        ):
            network = NullNetwork(partitions)
            with Producer(connector=network, **options) as producer:
                measure(f"{size} B, {label}", count, producer, partial(producer.send, "t", value))
                if partitions > 1:
                    measure(f"{size} B, {label}, key", count, producer, partial(producer.send, "t", value, key))


if __name__ == "__main__":
    main()
