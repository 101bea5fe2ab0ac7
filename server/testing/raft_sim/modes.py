"""Which faults a run has, and the list of events that follows from a seed."""

from dataclasses import dataclass, replace
from random import Random
from typing import Any

Event = tuple[Any, ...]
"""(step, kind, arguments...)"""


CLOCK_RATES = (0.4, 0.7, 0.9, 1.2, 1.6, 2.5)
"""Ticks of a node per step of the world."""


@dataclass(frozen=True, kw_only=True)
class Mode:
    """Probabilities are per step of 0.1 s."""

    name: str
    is_fifo: bool = True
    """TCP-like links; else datagrams."""
    drop: float = 0.0
    duplicate: float = 0.0
    delay: int = 1
    """Most extra steps on the way."""
    replay: int = 0
    """Datagrams, of any age, that arrive once more in each step."""
    partition: float = 0.0
    breaks: float = 0.0
    """Connections that are reset."""
    slow: float = 0.0
    """One direction becomes slow for a while."""
    crash: float = 0.0
    doom: float = 0.0
    """The next leader dies within the first messages after those of its election, which may get lost with it: so few others
    have its entries."""
    midcrash: float = 0.0
    """Crash between two disk operations."""
    all_crash: float = 0.0
    is_lossy: bool = False
    """Unsynced writes are lost at a crash."""
    has_zombies: bool = False
    """Bytes of an old connection arrive after those of the next one."""
    torn: float = 0.0
    """Share of the lossy crashes that leave half of a log entry."""
    sync_steps: int = 0
    """Most steps that an fsync lasts; 0: the engine chooses."""
    lost_disk: float = 0.0
    """A node comes back with an empty disk, and so as another replica; never more of them than the voters can bear."""
    damage: float = 0.0
    """A node dies, and bits flip in what its disk had synced; within the same bounds."""
    clock: float = 0.0
    """A node's clock runs slow or fast for a while."""
    stall: float = 0.0
    transfer: float = 0.0
    compact: float = 0.0
    voters: float = 0.0
    """Voter changes."""
    has_observers: bool = False
    """The spare nodes, and removed voters, ask for the log; in the end they have it too."""
    forget: float = 0.0
    """A node forgets one that observes."""
    propose: float = 0.25
    burst: int = 4
    read: float = 0.0


_LAN = Mode(name="lan", partition=0.02, breaks=0.04, slow=0.03, stall=0.01)
_DATAGRAMS = Mode(name="datagrams", is_fifo=False, drop=0.05, partition=0.02, crash=0.02)
_CHAOS = replace(
    _DATAGRAMS, duplicate=0.05, all_crash=0.003, is_lossy=True, torn=0.3, stall=0.02, transfer=0.02, read=0.3
)
_REPLAY = Mode(
    name="replay", is_fifo=False, drop=0.05, duplicate=0.05, delay=2, partition=0.03, transfer=0.05, read=0.3
)
_BAD_DISKS = Mode(name="bad disks", is_lossy=True, midcrash=0.01, lost_disk=0.01, damage=0.015, torn=0.5, compact=0.1)

MODES = {
    mode.name: mode
    for mode in [
        Mode(name="clean"),
        replace(_LAN, name="tcp", crash=0.025),
        replace(_LAN, name="tcp-compact", crash=0.04, compact=0.15),
        replace(_LAN, name="midcrash-compact", midcrash=0.04, compact=0.15),
        replace(_LAN, name="power", crash=0.02, all_crash=0.008, is_lossy=True),
        replace(_LAN, name="power-compact", crash=0.02, all_crash=0.008, is_lossy=True, compact=0.15),
        replace(_LAN, name="zombie", crash=0.03, has_zombies=True),
        replace(_LAN, name="doomed", doom=0.15, read=0.2),
        replace(_LAN, name="slow-disks", sync_steps=7, doom=0.1, partition=0.05, propose=0.6, burst=8, compact=0.03),
        replace(_REPLAY, name="replay", replay=5, partition=0.1, transfer=0.2, clock=0.1, propose=0.3, read=0.8),
        replace(_REPLAY, name="replay-compact", replay=3, drop=0.15, delay=5, compact=0.3, propose=0.8, burst=8),
        replace(_DATAGRAMS, name="reorder", delay=3),
        replace(_DATAGRAMS, name="duplicate", drop=0.02, duplicate=0.10, delay=2),
        replace(_CHAOS, name="chaos", delay=3, midcrash=0.01, compact=0.1),
        replace(_CHAOS, name="voters", delay=2, compact=0.08, voters=0.06),
        replace(_LAN, name="observers", crash=0.04, compact=0.15, has_observers=True),
        replace(_CHAOS, name="observers-chaos", delay=3, compact=0.1, forget=0.03, has_observers=True),
        replace(_CHAOS, name="observers-voters", compact=0.08, voters=0.06, forget=0.02, has_observers=True),
        replace(
            _BAD_DISKS, name="disks", partition=0.02, breaks=0.04, slow=0.03, crash=0.02, all_crash=0.004, read=0.2
        ),
        replace(
            _BAD_DISKS,
            name="disks-chaos",
            is_fifo=False,
            drop=0.05,
            duplicate=0.05,
            delay=2,
            partition=0.02,
            crash=0.02,
            stall=0.02,
            clock=0.02,
            transfer=0.02,
            voters=0.03,
            read=0.3,
        ),
        replace(_CHAOS, name="clocks", delay=2, compact=0.05, clock=0.08),
        Mode(
            name="voters-often",
            is_fifo=False,
            drop=0.02,
            duplicate=0.05,
            delay=1,
            partition=0.1,
            crash=0.02,
            compact=0.08,
            voters=0.4,
            forget=0.02,
            has_observers=True,
        ),
    ]
}

_KINDS = (
    "partition",
    "breaks",
    "slow",
    "crash",
    "doom",
    "midcrash",
    "all_crash",
    "lost_disk",
    "damage",
    "clock",
    "stall",
    "transfer",
    "compact",
    "read",
    "voters",
    "forget",
)


def schedule(seed: int, mode: Mode, node_count: int, steps: int, extra: int = 0) -> list[Event]:
    """The events of the nemesis and the clients: a pure function of its arguments."""
    random = Random(f"nemesis-{seed}")
    pool = [f"n{i}" for i in range(node_count + extra)]
    events: list[Event] = []
    command = 0
    for step in range(3, steps):
        if random.random() < mode.propose:
            count = 1 if random.random() < 0.6 else random.randint(2, mode.burst * 3)
            nid = random.choice(pool)
            events += [(step, "propose", nid, command + i) for i in range(count)]
            command += count
        for kind in _KINDS:
            if random.random() < getattr(mode, kind):
                events += _fault(kind, step, pool, node_count, random)
    events.sort(key=lambda event: event[0])
    return events


def _fault(kind: str, step: int, pool: list[str], node_count: int, random: Random) -> list[Event]:
    a, b = random.sample(pool, 2)
    match kind:
        case "partition":
            side = tuple(random.sample(pool, random.randint(1, max(1, node_count // 2))))
            direction = random.choice(["both", "both", "in", "out"])
            return [(step, "partition", side, direction), (step + random.randint(5, 28), "heal")]
        case "breaks":
            return [(step, "break", a, b, random.random() < 0.5, random.randint(1, 6))]
        case "slow":
            return [(step, "slow", a, b, random.randint(3, 25), random.randint(5, 40))]
        case "crash":
            return [(step, "crash", a, random.randint(1, 30))]
        case "doom":
            return [(step, "doom", random.randint(0, 8))]
        case "midcrash":
            return [(step, "midcrash", a, random.randint(0, 6))]
        case "all_crash":
            return [(step, "all_crash", random.randint(1, 5))]
        case "lost_disk":
            return [(step, "lost_disk", a, random.randint(1, 30))]
        case "damage":
            return [(step, "damage", a, random.random(), random.randint(1, 30))]
        case "clock":
            return [(step, "clock", a, random.choice(CLOCK_RATES), random.randint(10, 60))]
        case "stall":
            return [(step, "stall", a, random.randint(5, 30))]
        case "voters":
            return [(step, "voters", random.choice(["add", "remove"]), b)]
        case _:
            return [(step, kind, a, b)]
