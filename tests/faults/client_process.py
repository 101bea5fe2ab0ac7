"""`topic_clients` in a process, as a test sees it: what was answered so far, who leads, and the history at the end."""

import json
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import IO, Self

from tests.faults.topic_clients import NO_LEADER, Plan, TopicOperation, operation_of

WAIT_S = 60.0  # for what takes a second or two on a free machine


@dataclass(frozen=True, slots=True)
class LeaderSeen:
    """What a broker said of who leads."""

    leader: int
    epoch: int
    by: str
    at: float


class ClientProcess:
    """Starts with the block and is ended with it. Used from one thread."""

    def __init__(self, plan: Plan, directory: Path, command_prefix: Sequence[str] = ()) -> None:
        self.plan = plan
        self._command = [*command_prefix, sys.executable, "-m", "tests.faults.topic_clients", plan.encode()]
        self._errors = directory / f"clients-{plan.name}.log"
        self._changed = threading.Condition()
        self._history: list[TopicOperation] = []
        self._leaders: list[LeaderSeen] = []
        self._failed_at: list[float] = []
        self._has_ended = False

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
        self._reader = threading.Thread(target=self._read, args=(self._process.stdout,), name="clients")
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

    def wait_for_answers(self, count: int) -> None:
        """Wait until so many operations have been called from here on, and answered."""
        begin = time.monotonic()

        def is_enough() -> bool:
            return sum(each.is_known and each.called_at >= begin for each in reversed(self._history)) >= count

        self._wait(is_enough, f"{count} more answers")

    def wait_for_failures(self, count: int) -> None:
        """Wait until so many attempts have been made from here on that came to nothing."""
        begin = time.monotonic()
        self._wait(lambda: sum(at >= begin for at in self._failed_at) >= count, f"{count} failed attempts")

    def wait_for_leader(self, is_wanted: Callable[[LeaderSeen], bool] = lambda seen: True) -> LeaderSeen:
        """The newest leader that some broker has named, once it is one of those that are wanted."""

        def wanted() -> LeaderSeen | None:
            known = [seen for seen in self._leaders if seen.leader != NO_LEADER]
            newest = max(known, key=lambda seen: seen.epoch, default=None)
            return newest if newest is not None and is_wanted(newest) else None

        self._wait(lambda: wanted() is not None, "another leader")
        with self._changed:
            leader = wanted()
        assert leader is not None
        return leader

    def finish(self) -> list[TopicOperation]:
        """Let the clients end what they do and describe every topic; return all that they saw."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        assert self._process.wait(WAIT_S) == 0, self._complaints()
        self._reader.join()
        return list(self._history)

    def _wait(self, is_reached: Callable[[], bool], what: str) -> None:
        with self._changed:
            reached = self._changed.wait_for(lambda: is_reached() or self._has_ended, WAIT_S) and is_reached()
            assert reached, (
                f"{self.plan.name}: no {what} within {WAIT_S} s, {len(self._history)} operations so far; "
                f"leaders {self._leaders[-5:]}; the clients said {self._complaints()}"
            )

    def _complaints(self) -> str:
        return "\n".join(self._errors.read_text(encoding="utf-8", errors="replace").splitlines()[-6:])

    def _read(self, lines: IO[bytes]) -> None:
        for line in lines:
            fields = json.loads(line)
            with self._changed:
                if "leader" in fields:
                    self._leaders.append(LeaderSeen(**fields))
                elif "failed" in fields:
                    self._failed_at.append(fields["at"])
                else:
                    self._history.append(operation_of(fields))
                self._changed.notify_all()
        with self._changed:
            self._has_ended = True
            self._changed.notify_all()
