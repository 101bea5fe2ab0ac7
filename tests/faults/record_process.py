"""`record_clients` in a process, as a test sees it: what was acknowledged and read so far, and all of it at the end."""

import json
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import IO, Any, Self

from tests.checker.records import Acknowledged, Session, Value
from tests.faults.record_clients import DAMAGED, GROUP, Plan

WAIT_S = 90.0  # for what takes a few seconds on a free machine


@dataclass(frozen=True, slots=True)
class Seen:
    """A partition as some broker described it."""

    leader: int
    """-1: none."""
    leader_epoch: int
    isr: frozenset[int]
    at: float


@dataclass(slots=True)
class Told:
    """What the process has said. Guarded by the condition of `RecordProcess`."""

    acknowledged: list[Acknowledged] = field(default_factory=list)
    acknowledged_at: list[float] = field(default_factory=list)
    """When the process was told, one for each of `acknowledged`."""
    failed: list[str] = field(default_factory=list)
    sent: int | None = None
    sessions: dict[int, tuple[int, int | None]] = field(default_factory=dict)
    """Partition and beginning."""
    given: dict[int, list[tuple[int, Value]]] = field(default_factory=dict)
    """By session."""
    ends: dict[int, int] = field(default_factory=dict)
    """By partition: the offset after the highest that was read."""
    partitions: dict[int, Seen] = field(default_factory=dict)
    """The newest that is known of each."""
    has_ended: bool = False


class RecordProcess:
    """Starts with the block and is ended with it. Used from one thread."""

    def __init__(self, plan: Plan, directory: Path, command_prefix: Sequence[str] = ()) -> None:
        self.plan = plan
        self.told = Told()
        self.changed = threading.Condition()
        self._command = [*command_prefix, sys.executable, "-m", "tests.faults.record_clients", plan.encode()]
        self._errors = directory / f"{plan.name}.log"

    def __enter__(self) -> Self:
        with self._errors.open("ab") as errors:
            self._process = subprocess.Popen(
                self._command,
                cwd=Path(__file__).parents[2],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                start_new_session=True,
            )
        assert self._process.stdout is not None
        self._reader = threading.Thread(target=self._read, args=(self._process.stdout,), name=self.plan.name)
        self._reader.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._process.poll() is None:
            self._process.kill()
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        self._process.wait(WAIT_S)
        self._reader.join()
        self._process.stdout.close()

    def finish(self) -> None:
        """Let it end what it does, and have all that it said."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        assert self._process.wait(WAIT_S) == 0, self.complaints()
        self._reader.join()

    def wait(self, is_reached: Callable[[Told], bool], what: str) -> None:
        with self.changed:
            self.changed.wait_for(lambda: is_reached(self.told) or self.told.has_ended, WAIT_S)
            assert is_reached(self.told), (
                f"{self.plan.name}: no {what} within {WAIT_S} s; {len(self.told.acknowledged)} acknowledged, "
                f"failed {self.told.failed[:3]}, read up to {self.told.ends}; it said {self.complaints()}"
            )

    def wait_for_acknowledgments(self, count: int) -> None:
        """Wait until so many more records are acknowledged."""
        begin = time.monotonic()

        def is_enough(told: Told) -> bool:
            return len(told.acknowledged_at) >= count and told.acknowledged_at[-count] >= begin

        self.wait(is_enough, f"{count} more acknowledgments")

    def wait_for_news(self, timeout_s: float) -> None:
        with self.changed:
            self.changed.wait(timeout_s)

    def sessions(self) -> list[Session]:
        """Of a process that has ended."""
        group = self.plan.topic if self.plan.role == GROUP else self.plan.name
        return [
            Session(group, self.plan.name, partition, self.told.given.get(number, []), begin)
            for number, (partition, begin) in self.told.sessions.items()
        ]

    def complaints(self) -> str:
        return "\n".join(self._errors.read_text(encoding="utf-8", errors="replace").splitlines()[-12:])

    def _read(self, lines: IO[bytes]) -> None:
        for line in lines:
            fields = json.loads(line)
            with self.changed:
                self._take(fields)
                self.changed.notify_all()
        with self.changed:
            self.told.has_ended = True
            self.changed.notify_all()

    def _take(self, fields: dict[str, Any]) -> None:
        told = self.told
        if "acknowledged" in fields:
            for partition, number, offset in fields["acknowledged"]:
                told.acknowledged.append(Acknowledged(partition, Value(self.plan.name, number), offset))
                told.acknowledged_at.append(fields["at"])
            told.failed += fields["failed"]
        elif "leader" in fields:
            seen = Seen(fields["leader"], fields["leader_epoch"], frozenset(fields["isr"]), fields["at"])
            told.partitions[fields["partition"]] = seen
        elif "sent" in fields:
            told.sent = fields["sent"]
        elif "given" in fields:
            records = told.given.setdefault(fields["session"], [])
            records += [(offset, _value(text)) for offset, text in fields["given"]]
            partition = fields["partition"]
            told.ends[partition] = max(told.ends.get(partition, 0), records[-1][0] + 1)
        else:
            told.sessions[fields["session"]] = (fields["partition"], fields["begin"])


def _value(text: str) -> Value:
    """A damaged one is one that nobody sent."""
    if text.startswith(DAMAGED):
        return Value(text, -1)
    producer, _, number = text.rpartition("-")
    return Value(producer, int(number))
