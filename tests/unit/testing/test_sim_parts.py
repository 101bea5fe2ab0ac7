"""Durable logs, the trace, the plan of faults, and the guard against ambient time and randomness."""

import random
import time
import types
import uuid

import pytest

from kraftlog.proto.records import BatchBuilder
from kraftlog.testing.determinism import NondeterminismError, only_seams
from kraftlog.testing.filesystem import SimFileSystem, SimulatedPowerLoss
from kraftlog.testing.randomness import SeedSource
from kraftlog.testing.sim.durable import DurableLogs
from kraftlog.testing.sim.plan import CRASHES_MIN, Fault, draw_plan
from kraftlog.testing.sim.trace import Trace


def _batch(base_offset: int, count: int) -> bytes:
    builder = BatchBuilder()
    for number in range(count):
        builder.append(0, None, b"value %d" % number)
    return builder.build(base_offset=base_offset, leader_epoch=0)


def test_only_synced_batches_under_synced_names_are_durable() -> None:
    """File content, the file's name and the directory's name: each has its own sync."""
    fs = SimFileSystem()
    fs.mkdir("/data/orders-0")
    logs = DurableLogs(fs, "/data")
    file = fs.open("/data/orders-0/00000000000000000000.log", create=True)
    file.preallocate(0, 4096)
    first = _batch(0, 3)
    file.pwritev([first], 0)
    assert logs.end_offset("orders", 0) == 0
    file.fdatasync()
    assert logs.end_offset("orders", 0) == 0
    fs.fsync_dir("/data/orders-0")
    assert logs.end_offset("orders", 0) == 0
    fs.fsync_dir("/data")
    fs.fsync_dir("/")
    assert logs.end_offset("orders", 0) == 3
    second = _batch(3, 2)
    file.pwritev([second], len(first))
    assert logs.end_offset("orders", 0) == 3
    file.fdatasync()
    assert logs.end_offset("orders", 0) == 5


def test_durable_ends_follow_the_log_into_the_next_segment() -> None:
    """A roll begins a file that is named by its first offset."""
    fs = SimFileSystem()
    fs.mkdir("/data/orders-0")
    logs = DurableLogs(fs, "/data")
    fs.put("/data/orders-0/00000000000000000000.log", _batch(0, 3))
    for path in ("/data", "/"):
        fs.fsync_dir(path)
    assert logs.end_offset("orders", 0) == 3
    fs.put("/data/orders-0/00000000000000000003.log", _batch(3, 4) + _batch(7, 1))
    assert logs.end_offset("orders", 0) == 8
    logs.forget()
    assert logs.end_offset("orders", 0) == 8
    assert logs.end_offset("orders", 1) == 0


def test_a_power_loss_in_an_operation_is_announced_before_it_is_raised() -> None:
    """Whoever runs the simulation hears of it even if the component swallows the exception."""
    heard: list[str] = []
    fs = SimFileSystem(on_power_loss=lambda: heard.append("power loss"))
    fs.mkdir("/data")
    fs.stop_after(1)
    fs.open("/data/file", create=True)
    with pytest.raises(SimulatedPowerLoss):
        fs.fsync_dir("/data")
    assert heard == ["power loss"]


def test_equal_traces_have_equal_hashes() -> None:
    """And one more or another line changes it; the tail is kept for reports."""
    traces = [Trace(), Trace(), Trace(keep=True)]
    for trace in traces:
        for number in range(1_000):
            trace.add(f"line {number}")
    assert len({trace.digest for trace in traces}) == 1
    assert traces[0].tail()[-1] == "line 999"
    assert len(traces[0].lines) < 100
    assert len(traces[2].lines) == traces[0].count == 1_000
    before = traces[0].digest
    traces[0].add("")
    assert traces[0].digest != before


SEVERAL = {
    Fault.POWER_LOSS_OF_ALL,
    Fault.LEADER_POWER_LOSS,
    Fault.CUT_OFF,
    Fault.CUT_OFF_ONE_WAY,
    Fault.CUT_LINK,
    Fault.DISK_LOSS,
    Fault.REASSIGN,
    Fault.CONFIG,
    Fault.CLOCK_RATE,
    Fault.DELETE_RECORDS,
    Fault.RETENTION,
    Fault.FLUSH_POLICY,
}
"""What befalls a cluster of several nodes alone."""


@pytest.mark.parametrize(("nodes", "expected"), [(1, set(Fault) - SEVERAL), (3, set(Fault))])
def test_plans_follow_from_the_seed_and_hold_crashes(nodes: int, expected: set[Fault]) -> None:
    """Every kind of fault is drawn by some seed, for every node; each plan has enough crashes and is in order."""
    kinds, befallen = set(), set()
    for seed in range(50):
        plan = draw_plan(SeedSource(seed).stream("plan"), duration_ms=100_000, nodes=nodes)
        assert plan == draw_plan(SeedSource(seed).stream("plan"), duration_ms=100_000, nodes=nodes)
        times = [planned.at_ms for planned in plan.faults]
        assert times == sorted(times)
        assert all(0 <= begin < end <= 100_000 for begin, end in plan.storms)
        crashes = {Fault.POWER_LOSS, Fault.POWER_LOSS_IN_WRITE, Fault.KILL}
        assert sum(planned.fault in crashes for planned in plan.faults) >= CRASHES_MIN
        kinds |= {planned.fault for planned in plan.faults}
        befallen |= {planned.node for planned in plan.faults}
    assert kinds == expected
    assert befallen == set(range(nodes))


def test_ambient_time_and_randomness_are_refused_to_kraftlog_only() -> None:
    """The error names the line; other modules, such as logging, go on as ever."""
    component = types.ModuleType("kraftlog.some.component")
    source = "import random, time, uuid\ndef clock(): return time.time()\ndef identity(): return uuid.uuid4()\n"
    exec(compile(source, "some/component.py", "exec"), component.__dict__)
    clock, identity = component.__dict__["clock"], component.__dict__["identity"]
    with only_seams():
        assert time.time() > 0
        assert uuid.uuid4()
        assert random.random() < 1
        with pytest.raises(NondeterminismError, match=r"some/component\.py:2 calls time\.time\(\)"):
            clock()
        with pytest.raises(NondeterminismError, match=r"uuid\.uuid4"):
            identity()
    assert clock() > 0
    assert identity()
