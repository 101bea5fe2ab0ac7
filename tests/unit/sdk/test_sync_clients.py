"""The synchronous clients on their background loop, against a cluster in memory on real time."""

import asyncio
import gc
import logging
import random
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kraftlog.proto.admin_pb2 import CreateTopicsRequest, DeleteTopicsRequest
from kraftlog.proto.errors import (
    BufferExhaustedError,
    ClientClosedError,
    ErrorCode,
    IllegalStateError,
    InvalidRecordError,
    KraftlogError,
    NetworkError,
    NotControllerError,
    RequestTimedOutError,
    TopicAlreadyExistsError,
    UnknownTopicOrPartitionError,
)
from kraftlog.sdk import background
from kraftlog.sdk.admin import Admin, AsyncAdmin
from kraftlog.sdk.background import BackgroundLoop, background_loop
from kraftlog.sdk.consumer import Consumer, ConsumerRebalanceListener
from kraftlog.sdk.producer import Producer, batch, sync_producer
from kraftlog.sdk.types import NewTopic, TopicPartition
from tests.unit.sdk.fake_broker import FakeCluster

SERVERS = "broker1:9092"
TP = TopicPartition("orders", 0)
ROOT = Path(__file__).parents[3]


def producer(cluster: FakeCluster, **options) -> Producer:
    return Producer(bootstrap_servers=SERVERS, connector=cluster.connector(), random=random.Random(7), **options)


def consumer(cluster: FakeCluster, **options) -> Consumer:
    return Consumer(bootstrap_servers=SERVERS, connector=cluster.connector(), random=random.Random(7), **options)


def wait_until(condition: Callable[[], bool], timeout_s: float = 20) -> None:
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.005)


def filled(count: int, partitions: int = 1) -> FakeCluster:
    cluster = FakeCluster(join_wait_ms=5)
    cluster.create("orders", partitions)
    with producer(cluster) as p:
        for i in range(count):
            p.send("orders", b"%d" % i, partition=i % partitions)
    return cluster


def test_send_and_read_back() -> None:
    """The same source as asyncio: futures, flush, poll, iteration, commit."""
    cluster = FakeCluster()
    cluster.create("orders")
    with producer(cluster) as p:
        futures = [p.send("orders", b"%d" % i) for i in range(2_000)]
        assert [f.result(10).offset for f in futures] == list(range(2_000))
        assert p.partitions_for("orders") == {0}
    with consumer(cluster, auto_offset_reset="earliest", group_id="g") as c:
        c.subscribe("orders")
        got = []
        while len(got) < 1_000:
            for records in c.poll(1_000, max_records=300).values():
                got += [r.offset for r in records]
        for record in c:
            got.append(record.offset)
            if record.offset == 1_999:
                break
        assert got == list(range(2_000))
        assert c.assignment() == {TP}
        assert c.position(TP) == 2_000
        c.commit()
        assert c.committed(TP) == 2_000
        assert c.end_offsets([TP]) == {TP: 2_000}
        assert c.poll() == {}
        c.seek(TP, 1_500)
        assert next(c).offset == 1_500


def test_many_threads_may_send() -> None:
    """One lock: nothing is lost, and each thread's records keep their order."""
    cluster = FakeCluster()
    cluster.create("orders")
    with producer(cluster, linger_ms=1, batch_size=4_096) as p:

        def work(name: int) -> None:
            for i in range(2_000):
                p.send("orders", b"%d %d" % (name, i))

        threads = [threading.Thread(target=work, args=(n,)) for n in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    values = [tuple(map(int, v.split())) for v in cluster.partition("orders").values()]
    for name in range(4):
        assert [i for n, i in values if n == name] == list(range(2_000))


def test_a_full_buffer_blocks_and_then_raises() -> None:
    cluster = FakeCluster()
    cluster.create("orders")
    p = producer(cluster, buffer_memory=1 << 16, batch_size=1 << 14, max_request_size=1 << 14, max_block_ms=300)
    p.partitions_for("orders")
    cluster.frozen.add(1)
    started = time.monotonic()
    accepted = 0

    def fill() -> None:
        nonlocal accepted
        while True:
            p.send("orders", b"x" * 1_000)
            accepted += 1

    with pytest.raises(BufferExhaustedError, match="max_block_ms=300"):
        fill()
    assert 0.3 <= time.monotonic() - started < 2
    assert p._accumulator.used_bytes <= 1 << 16
    cluster.frozen.clear()
    p.flush(10)
    assert p._accumulator.used_bytes == 0
    p.close()
    assert len(cluster.partition("orders").values()) == accepted


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["down", "frozen"])
def test_close_is_bounded_also_from_a_second_thread(kind: str) -> None:
    """L01: brokers gone or silent; close(1) of both clients returns in time from two threads, failures are reported."""
    cluster = filled(50)
    p = producer(cluster)
    p.send("orders", b"x").result(10)
    c = consumer(cluster, auto_offset_reset="earliest", group_id="g")
    c.subscribe("orders")
    while not c.poll(1_000):
        pass
    c.poll()
    happened = threading.Event()
    background_loop().call_soon(cluster.stop if kind == "down" else cluster.frozen.add, 1)
    background_loop().call_soon(happened.set)
    assert happened.wait(10)
    future = p.send("orders", b"lost")
    outcomes: list[object] = []

    def close(client: Producer | Consumer) -> None:
        try:
            outcomes.append(client.close(1))
        except KraftlogError as error:
            outcomes.append(error)

    started = time.monotonic()
    threads = [threading.Thread(target=close, args=(client,)) for client in (p, p, c, c)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(10)
        assert not thread.is_alive()
    assert time.monotonic() - started < 4
    assert any(isinstance(outcome, ClientClosedError) for outcome in outcomes)
    with pytest.raises(ClientClosedError, match="not acknowledged when the producer was closed"):
        future.result(1)
    with pytest.raises(ClientClosedError, match="the producer is closed"):
        p.send("orders", b"x")
    with pytest.raises(ClientClosedError, match="the consumer is closed"):
        c.poll()


def test_callbacks_run_in_a_thread_of_their_own_and_may_do_anything(caplog: pytest.LogCaptureFixture) -> None:
    """L07: a callback that raises, sends, waits for itself or closes: a clear error or it works; the others run."""
    cluster = FakeCluster()
    cluster.create("orders")
    seen: list[object] = []
    p = producer(cluster, linger_ms=0)

    def waits_for_itself(_: object) -> None:
        cluster.frozen.add(1)  # so that it is not answered at once
        inner = p.send("orders", b"inner")
        try:
            inner.result()
        except IllegalStateError as error:
            seen.append(str(error))
        cluster.frozen.clear()

    def flushes(_: object) -> None:
        cluster.frozen.add(1)
        p.send("orders", b"inner 2")
        try:
            p.flush()
        except IllegalStateError as error:
            seen.append(str(error))
        cluster.frozen.clear()

    def raises(_: object) -> None:
        raise ValueError("a user's mistake")

    with caplog.at_level(logging.ERROR):
        p.send("orders", b"1").add_done_callback(raises).add_done_callback(lambda f: seen.append(f.result().offset))
        p.flush()
        p.send("orders", b"2").add_done_callback(waits_for_itself)
        wait_until(lambda: len(seen) == 2)
        p.send("orders", b"3").add_done_callback(flushes)
        wait_until(lambda: len(seen) == 3)
        p.produce("orders", b"4", on_delivery=lambda error, future: seen.append((error, future.partition)))
        wait_until(lambda: len(seen) == 4)
        p.flush()
        done = threading.Event()

        def closes(_: object) -> None:
            try:
                p.close()
            finally:
                done.set()

        p.send("orders", b"5").add_done_callback(closes)
        assert done.wait(10)
    assert "a delivery callback raised" in caplog.text
    assert seen[0] == 0
    assert seen[1] == "waiting for a record inside of a delivery callback would wait for itself"
    assert seen[2] == "flush inside of a delivery callback would wait for itself"
    assert seen[3] == (None, 0)
    with pytest.raises(ClientClosedError):
        p.send("orders", b"x")
    assert set(cluster.partition("orders").values()) >= {b"1", b"2", b"3", b"4", b"5", b"inner", b"inner 2"}


def sends_until_exhausted(send: Callable[[], object]) -> int:
    for sent in range(1_000):
        try:
            send()
        except BufferExhaustedError:
            return sent
    pytest.fail("there is memory for everything")


def test_slow_callbacks_slow_the_sends_and_not_the_heartbeats() -> None:
    """The memory of a batch comes back after its callbacks: the backlog of callbacks is bounded by buffer_memory."""
    cluster = FakeCluster()
    cluster.create("orders")
    gate = threading.Event()
    with producer(
        cluster, linger_ms=0, buffer_memory=1 << 15, batch_size=1 << 13, max_request_size=1 << 13, max_block_ms=200
    ) as p:
        assert (
            sends_until_exhausted(lambda: p.send("orders", b"x" * 1_000).add_done_callback(lambda _: gate.wait(10)))
            < 100
        )
        background_loop().run(_nothing, 1)  # the loop is free
        gate.set()


def test_callbacks_that_come_after_the_answer_are_bounded_by_buffer_memory_too() -> None:
    """Failed without the memory they take again: against a fast broker the backlog of slow callbacks had no bound."""
    cluster = FakeCluster()
    cluster.create("orders")
    gate = threading.Event()
    ran: list[int] = []

    def waits(future: object) -> None:
        gate.wait(10)
        ran.append(1)

    with producer(
        cluster, linger_ms=0, buffer_memory=1 << 15, batch_size=1 << 13, max_request_size=1 << 13, max_block_ms=200
    ) as p:

        def send() -> None:
            future = p.send("orders", b"x" * 1_000)
            future.result()
            future.add_done_callback(waits)

        sent = sends_until_exhausted(send)
        assert 16 <= sent < 100
        gate.set()
        wait_until(lambda: len(ran) == sent)
        wait_until(lambda: p._accumulator.used_bytes == 0)
        p.send("orders", b"there is memory again").result()


def test_a_callback_added_after_close_runs_at_once() -> None:
    """Was never called when the thread of the callbacks had been started and had ended."""
    cluster = FakeCluster()
    cluster.create("orders")
    seen: list[object] = []
    with producer(cluster) as p:
        future = p.send("orders", b"1").add_done_callback(seen.append)
    unwatched = producer(cluster)
    other = unwatched.send("orders", b"2")
    unwatched.close()
    assert seen == [future]
    future.add_done_callback(seen.append)
    other.add_done_callback(seen.append)
    assert seen == [future, future, other]


async def _nothing() -> None:
    return None


def test_ctrl_c_before_the_loop_has_the_work_drops_no_coroutine(monkeypatch: pytest.MonkeyPatch) -> None:
    """It would be reported as never awaited, at the end of a command that the user has stopped."""
    background = BackgroundLoop()
    made: list[object] = []

    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(background.loop, "call_soon_threadsafe", interrupted)
        with pytest.raises(KeyboardInterrupt):
            background.run(lambda: made.append(1) or _nothing())
    assert made == []
    background.stop()


def interrupted_at_every_step(use: Callable[[], object], check: Callable[[], object]) -> int:
    """`use`, again and again, with Ctrl-C at the first, the second, ... place where the interpreter may look for signals: the
    entry of a function, and the return from one, in Python or C. After each nothing but KeyboardInterrupt comes out and
    `check` passes. Returns the number of places."""
    with pytest.MonkeyPatch.context() as patch:  # a slow machine must not add places
        for module in (background, batch, sync_producer):
            patch.setattr(module, "WAIT_SLICE_S", 10.0)
        gc.collect()
        gc.disable()  # Ctrl-C in the destructor of an object of another test would be one warning
        try:
            return _interrupted_at_every_step(use, check)
        finally:
            gc.enable()


def _interrupted_at_every_step(use: Callable[[], object], check: Callable[[], object]) -> int:
    place = 0
    while True:
        place += 1
        left = place

        def count(frame: object, event: str, argument: object) -> None:
            nonlocal left
            left -= event in ("call", "return", "c_return")
            if not left:
                sys.setprofile(None)
                raise KeyboardInterrupt

        try:
            sys.setprofile(count)
            use()
            sys.setprofile(None)
        except KeyboardInterrupt:
            check()
        else:
            return place - 1


def test_ctrl_c_at_any_step_of_a_call_to_the_loop() -> None:
    loop = BackgroundLoop()
    assert interrupted_at_every_step(lambda: loop.run(_nothing), lambda: loop.run(_nothing, 10)) > 20
    loop.stop()


def test_ctrl_c_at_any_step_of_a_send_and_its_wait() -> None:
    cluster = FakeCluster()
    cluster.create("orders")
    with producer(cluster) as p:

        def send() -> None:
            p.send("orders", b"x").result()
            p.flush()

        assert interrupted_at_every_step(send, lambda: p.send("orders", b"x").result(10)) > 50


def test_ctrl_c_at_any_step_of_a_wait_for_memory() -> None:
    cluster = FakeCluster()
    cluster.create("orders")
    with producer(cluster, buffer_memory=1 << 14, batch_size=1 << 14, max_request_size=1 << 14, linger_ms=0) as p:

        def fill() -> None:
            for _ in range(3):
                p.send("orders", b"x" * 10_000)

        assert interrupted_at_every_step(fill, lambda: p.flush(10)) > 50


def test_ctrl_c_at_any_step_of_a_poll() -> None:
    cluster = filled(1)
    with consumer(cluster, auto_offset_reset="earliest") as c:
        c.assign([TP])
        assert c.poll(10_000)

        def check() -> None:
            c.seek(TP, 0)
            assert c.poll(10_000)

        assert interrupted_at_every_step(lambda: c.poll(1), check) > 50


@pytest.mark.parametrize(
    "bad", [{"timestamp_ms": 1 << 70}, {"timestamp_ms": "today"}, {"headers": [("name", 7)]}], ids=repr
)
def test_a_refused_record_leaves_no_empty_batch(bad: dict[str, Any]) -> None:
    """A batch without a record cannot be sent: the connection ended on it, and took what others had sent along."""
    cluster = FakeCluster()
    cluster.create("orders")
    with producer(cluster, linger_ms=1) as p:
        p.partitions_for("orders")
        with pytest.raises(KraftlogError):
            p.send("orders", b"x", **bad)
        p.flush(10)
        assert p.send("orders", b"y").result(10).offset == 0


def test_work_that_nobody_waits_for_is_cancelled() -> None:
    cancelled = threading.Event()

    async def endless() -> None:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            cancelled.set()
            raise

    with pytest.raises(RequestTimedOutError):
        background_loop().run(endless, 0.01)
    assert cancelled.wait(10)


def test_unread_failures_come_out_of_close_but_do_not_hide_the_real_error(caplog: pytest.LogCaptureFixture) -> None:
    cluster = FakeCluster()
    cluster.create("orders")
    cluster.on_produce = lambda when, *_: int(ErrorCode.INVALID_RECORD) if when == "before" else None

    def use(error: Exception | None) -> None:
        with producer(cluster) as p:
            p.send("orders", b"x")
            if error is not None:
                raise error

    with pytest.raises(InvalidRecordError, match=r"1 record\(s\) were not delivered"):
        use(None)
    with caplog.at_level(logging.ERROR), pytest.raises(ZeroDivisionError):
        use(ZeroDivisionError())
    assert "1 record(s) were not delivered" in caplog.text


def test_waiting_with_a_timeout_leaves_the_record_alone() -> None:
    cluster = FakeCluster()
    cluster.create("orders")
    with producer(cluster) as p:
        p.partitions_for("orders")
        cluster.frozen.add(1)
        future = p.send("orders", b"x")
        with pytest.raises(RequestTimedOutError, match="wait on the same future, do not send again"):
            future.result(0.05)
        with pytest.raises(RequestTimedOutError, match="flush: 1 record"):
            p.flush(0.05)
        cluster.frozen.clear()
        assert future.result(10).offset == 0


def test_listeners_run_in_the_thread_that_polls_and_may_block() -> None:
    cluster = filled(10)
    threads: list[str] = []

    class Listener(ConsumerRebalanceListener):
        def on_partitions_assigned(self, assigned) -> None:
            threads.append(threading.current_thread().name)
            c.seek(TP, 4)
            assert c.position(TP) == 4

        def on_partitions_revoked(self, revoked) -> None:
            threads.append(threading.current_thread().name)
            c.commit()

    with consumer(cluster, group_id="g", enable_auto_commit=False) as c:
        c.subscribe(["orders"], listener=Listener())
        assert next(c).offset == 4
    assert threads == [threading.current_thread().name] * 2
    assert cluster.group("g").offsets["orders", 0][0] == 5


def test_arrow_in_the_synchronous_consumer() -> None:
    pytest.importorskip("pyarrow")
    cluster = filled(1_000, partitions=2)
    with consumer(cluster, auto_offset_reset="earliest") as c:
        c.assign([TP, TopicPartition("orders", 1)])
        rows = 0
        while rows < 1_000:
            rows += c.poll_arrow(1_000).num_rows
        assert rows == 1_000


def test_the_admin_speaks_plain_values() -> None:
    cluster = filled(10)
    with Admin(bootstrap_servers=SERVERS, connector=cluster.connector(), random=random.Random(7)) as admin:
        (made,) = admin.create_topics([NewTopic(name="t", num_partitions=3, configs={"retention.ms": "1"})])
        assert (made.name, made.num_partitions) == ("t", 3)
        with pytest.raises(TopicAlreadyExistsError, match="topic 't' exists already"):
            admin.create_topics(["t"])
        assert admin.list_topics() == ["orders", "t"]
        assert made.topic_id == admin.describe_topics(["t"])[0].topic_id == "AQEBAQEBAQEBAQEBAQEBAQ", "Kafka's spelling"
        assert admin.describe_topics(["t"])[0].configs == {"retention.ms": "1"}
        with pytest.raises(UnknownTopicOrPartitionError, match="topic 'nowhere'"):
            admin.describe_topics(["nowhere"])
        assert admin.list_offsets([TP]) == {TP: 10}
        assert admin.list_offsets([TP], "earliest") == {TP: 0}
        admin.delete_topics(["t"])
        with pytest.raises(UnknownTopicOrPartitionError, match="topic 't' does not exist"):
            admin.delete_topics(["t"])
        assert admin.describe_cluster().cluster_id == "fake"
        assert admin.describe_configs(topic="orders")[0].name == "retention.ms"
        with consumer(cluster, group_id="g", auto_offset_reset="earliest") as c:
            c.subscribe("orders")
            for _ in range(4):
                next(c)
            c.commit()
            (described,) = admin.describe_groups(["g"])
            assert described.state == "Stable"
            assert described.members[0].assignment == (TP,)
        (offset,) = admin.list_group_offsets("g")
        assert (offset.offset, offset.log_end_offset, offset.lag) == (4, 10, 6)
        assert [group.group_id for group in admin.list_groups()] == ["g"]
        with pytest.raises(KraftlogError, match="group 'nobody' does not exist"):
            admin.describe_groups(["nobody"])


def test_a_repeat_carries_the_request_id_of_the_first_attempt_and_the_next_request_another() -> None:
    """So the cluster does not do twice what it was asked for once."""

    class LosesAnswers(FakeCluster):
        def __init__(self) -> None:
            super().__init__()
            self.ids: list[bytes] = []

        async def unary(self, node: int, method: str, data: bytes) -> bytes:
            requests = {"CreateTopics": CreateTopicsRequest, "DeleteTopics": DeleteTopicsRequest}
            request = requests.get(method.rpartition("/")[2])
            if request is None:
                return await super().unary(node, method, data)
            self.ids.append(request.FromString(data).request_id)
            if len(self.ids) % 2:
                raise NetworkError("the connection was lost")
            return await super().unary(node, method, data)

    cluster = LosesAnswers()
    with Admin(bootstrap_servers=SERVERS, connector=cluster.connector(), retry_backoff_ms=1) as admin:
        admin.create_topics(["a"])
        admin.create_topics(["b"])
        admin.delete_topics(["a"])
    first, second, third = cluster.ids[::2]
    assert cluster.ids == [first, first, second, second, third, third]
    assert len({first, second, third}) == 3
    assert {len(each) for each in cluster.ids} == {16}


def test_the_last_attempt_of_a_request_does_not_hide_why_the_others_failed() -> None:
    """It has only the time that is left, and so ends by its own time-out."""

    async def work() -> None:
        admin = AsyncAdmin(bootstrap_servers=SERVERS, connector=FakeCluster().connector(), default_api_timeout_ms=200)
        limits: list[float] = []

        async def attempt(limit_ms: float) -> None:
            limits.append(limit_ms)
            if len(limits) == 1:
                raise NotControllerError("no majority")
            await asyncio.sleep(limit_ms / 1000)
            raise RequestTimedOutError("no answer")

        with pytest.raises(NotControllerError, match="no majority"):
            await admin._retrying(attempt)
        assert len(limits) == 2
        await admin.close()

    asyncio.run(work())


def run_script(text: str, *arguments: str, expect: int = 0, timeout: float = 60) -> "subprocess.CompletedProcess[str]":
    done = subprocess.run(
        [sys.executable, "-c", text, *arguments], capture_output=True, text=True, timeout=timeout, cwd=ROOT, check=False
    )
    assert done.returncode == expect, done.stderr
    return done


HEAD = """
import os, signal, sys, threading, time
from tests.unit.sdk.fake_broker import FakeCluster
from kraftlog.sdk.producer import Producer
from kraftlog.sdk.consumer import Consumer
from kraftlog.sdk.types import TopicPartition
cluster = FakeCluster(); cluster.create("orders")
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    "wait",
    [
        "Consumer(auto_offset_reset='latest', **options).poll(60_000)",
        "producer.send('orders', b'x').result()",
        "[producer.send('orders', b'x' * 1000) for _ in range(100_000)]",
        "producer.flush()",
        "producer.partitions_for('nowhere')",
    ],
)
def test_ctrl_c_ends_every_wait_within_200_ms(wait: str) -> None:
    """SIGINT while a call blocks: KeyboardInterrupt at once, and the program ends."""
    wait = wait.replace("Consumer(auto_offset_reset='latest', **options)", "consumer")
    done = run_script(
        HEAD
        + f"""
options = dict(bootstrap_servers="broker1:9092", connector=cluster.connector())
producer = Producer(**options)
producer.partitions_for("orders")
consumer = Consumer(**options)
consumer.assign([TopicPartition("orders", 0)])
cluster.frozen.add(1)
producer.send("orders", b"x")
def interrupt():
    global sent
    sent = time.monotonic()
    os.kill(os.getpid(), signal.SIGINT)
threading.Timer(0.4, interrupt).start()
try:
    {wait}
except KeyboardInterrupt:
    print(f"took {{(time.monotonic() - sent) * 1000:.0f}}")
os._exit(0)
"""
    )
    assert int(done.stdout.split()[1]) < 200


@pytest.mark.slow
def test_an_unclosed_producer_is_flushed_at_exit() -> None:
    """Nothing silent at the end of a program that forgot to close."""
    done = run_script(
        HEAD
        + """
import atexit
atexit.register(lambda: None)
producer = Producer(bootstrap_servers="broker1:9092", connector=cluster.connector(), linger_ms=60_000, delivery_timeout_ms=600_000)
producer.send("orders", b"x")
old = os._exit
import kraftlog.sdk.background as background
stop = background.BackgroundLoop.stop
def report(self):
    print("values", cluster.partition("orders").values())
    stop(self)
background.BackgroundLoop.stop = report
"""
    )
    assert "values [b'x']" in done.stdout


@pytest.mark.slow
def test_after_a_fork_the_child_starts_anew_and_the_parent_goes_on() -> None:
    """The child's producer is empty with an id of its own, its consumer refuses; the parent loses nothing."""
    done = run_script(
        HEAD
        + """
producer = Producer(bootstrap_servers="broker1:9092", connector=cluster.connector(), linger_ms=200)
producer.send("orders", b"before").result(10)
consumer = Consumer(bootstrap_servers="broker1:9092", connector=cluster.connector())
consumer.assign([TopicPartition("orders", 0)])
future = producer.send("orders", b"parent")
read, write = os.pipe()
child = os.fork()
if child == 0:
    out = []
    try:
        out.append(type(future.exception(5)).__name__)
        told = []
        future.add_done_callback(lambda done: told.append(type(done.exception(0)).__name__))
        before = producer._callbacks
        cluster = producer._connector.cluster  # the child's copy of the fake
        try:
            consumer.poll(100)
        except Exception as error:
            out.append(str(error))
        out.append(str(producer.send("orders", b"child").result(10).offset))
        out.append(str(sorted(cluster.partition("orders").producers)))
        assert before.close(5)
        assert told == ["IllegalStateError"], "callbacks on the parent's records run here too"
        producer.flush()
        assert producer._accumulator.used_bytes == 0, "the memory of the parent's batch"
        producer.close(5)
    except BaseException as error:
        out.append(repr(error))
    os.write(write, "|".join(out).encode())
    os._exit(0)
_, status = os.waitpid(child, 0)
print(os.read(read, 10_000).decode())
print(future.result(10).offset, sorted(cluster.partition("orders").producers))
producer.close()
consumer.close()
"""
    )
    child, parent = done.stdout.splitlines()
    assert child == (
        "IllegalStateError|this consumer was made before fork(): make a new one in the child process|1|[100, 101]"
    )
    assert parent == "1 [100]"
    assert done.stderr == ""
