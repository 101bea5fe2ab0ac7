"""The throttle of `kraftctl partition reassign --throttle`: set before the move begins, taken away when it is done.

If the command is interrupted, the move goes on, and its throttle with it: `--cancel` and `--remove-throttle` take it away.
"""

import time
from collections.abc import Callable, Iterable, Mapping
from types import TracebackType
from typing import TYPE_CHECKING

from kraftlog.proto.errors import KraftlogError
from kraftlog.sdk.cli.byte_rates import shown_bytes
from kraftlog.sdk.cli.output import note, plural

if TYPE_CHECKING:
    from kraftlog.sdk.admin import Admin
    from kraftlog.sdk.types import PartitionReassignment, ReplicationThrottle, TopicPartition

LOOK_INTERVAL_S = 5.0
ITEMS_SHOWN = 12  # of a list; more are counted
REMOVE = "kraftctl partition reassign --remove-throttle"


class MoveThrottle:
    """Of one move: within it the move is begun and waited for, and it goes with the move, but not before. Used by one thread."""

    def __init__(
        self,
        admin: "Admin",
        bytes_per_second: int,
        moves: "Mapping[TopicPartition, tuple[int, ...]]",
        *,
        dry_run: bool,
    ) -> None:
        self._admin = admin
        self._bytes_per_second = bytes_per_second
        self._moves = moves
        self._dry_run = dry_run
        self._set: ReplicationThrottle | None = None

    def __enter__(self) -> None:
        """Raises `InvalidConfigError` where another one has been set by hand."""
        former = self._admin.describe_replication_throttle()
        throttle = self._set = self._admin.throttle_reassignments(
            self._moves, self._bytes_per_second, validate_only=self._dry_run
        )
        for line in _lines("would set" if self._dry_run else "set", throttle, former=former):
            note(line)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None
    ) -> None:
        if self._dry_run or not self._set:
            return
        if isinstance(error, KeyboardInterrupt):  # the brokers may be busy: end at once
            note(f"the throttle stays meanwhile; when the move is done: {REMOVE}")
            return
        try:
            is_under_way = not self._moves.keys().isdisjoint(self._admin.list_partition_reassignments())
            removed = self._admin.remove_replication_throttle(self._set)
        except KraftlogError:
            note(f"the throttle may still be there; when the move is done: {REMOVE}")
            if error is None:
                raise
            return
        print_removed(removed, dry_run=False)
        if is_under_way:
            note(f"the throttle stays meanwhile; when the move is done: {REMOVE}")


class Backlog:
    """How much a throttled move has to copy yet, and whether that becomes less."""

    def __init__(self, admin: "Admin", bytes_per_second: int, clock: Callable[[], float] = time.monotonic) -> None:
        self._admin = admin
        self._bytes_per_second = bytes_per_second
        self._clock = clock
        self._next_look_s = 0.0
        self._before: int | None = None
        self.remark = f"throttled to {shown_bytes(bytes_per_second)}/s"

    def look(self, ongoing: "Mapping[TopicPartition, PartitionReassignment]") -> str:
        """What to say beside the progress; asks the brokers every few seconds."""
        if not ongoing or self._clock() < self._next_look_s:
            return self.remark
        self._next_look_s = self._clock() + LOOK_INTERVAL_S
        try:
            left = bytes_left(self._admin, ongoing)
        except KraftlogError:
            return self.remark  # a broker is down: the next look may tell
        text = f"throttled to {shown_bytes(self._bytes_per_second)}/s, {shown_bytes(left)} to copy"
        if self._before is not None and left >= self._before > 0:
            text += ", which does not become less: as much is written as the throttle lets through, raise --throttle"
        self._before = left
        self.remark = text
        return text


def bytes_left(admin: "Admin", ongoing: "Mapping[TopicPartition, PartitionReassignment]") -> int:
    """About how many bytes the replicas that are being added lack, of those that are not in sync."""
    from kraftlog.sdk.types import TopicPartition

    topics = sorted({tp.topic for tp in ongoing})
    logs = {
        (log_dir.node_id, TopicPartition(log.topic, log.partition)): log
        for log_dir in admin.describe_log_dirs(topics=topics)
        for log in log_dir.logs
    }
    left = 0.0
    for tp, each in ongoing.items():
        sources = [log for node in each.replicas if (log := logs.get((node, tp))) is not None]
        if not sources:
            continue
        fullest = max(sources, key=lambda log: log.log_end_offset)
        count = max(fullest.log_end_offset - fullest.log_start_offset, 1)
        for node in each.adding_replicas:
            if node not in each.in_sync_replicas:
                log = logs.get((node, tp))
                end = fullest.log_start_offset if log is None else max(log.log_end_offset, fullest.log_start_offset)
                left += fullest.size_bytes * (fullest.log_end_offset - end) / count
    return int(left)


def throttle_of(admin: "Admin", ongoing: "Mapping[TopicPartition, PartitionReassignment]") -> "ReplicationThrottle":
    """What of all that is set belongs to these reassignments under way."""
    from kraftlog.sdk.replication_throttle import of_reassignments

    return of_reassignments(admin.describe_replication_throttle(), ongoing)


def rates_of(
    throttle: "ReplicationThrottle", ongoing: "Mapping[TopicPartition, PartitionReassignment]"
) -> "dict[TopicPartition, int | None]":
    """The lowest rate that holds for a replica of each of them; `throttle`: what belongs to them."""
    sides = [
        (rates, {topic: frozenset(items) for topic, items in lists.items()})
        for rates, lists in (
            (throttle.leader_rates, throttle.leader_replicas),
            (throttle.follower_rates, throttle.follower_replicas),
        )
    ]
    return {
        tp: min(
            (
                rates[node]
                for rates, lists in sides
                for node in each.replicas
                if node in rates and f"{tp.partition}:{node}" in lists.get(tp.topic, ())
            ),
            default=None,
        )
        for tp, each in ongoing.items()
    }


def print_removed(removed: "ReplicationThrottle", *, dry_run: bool) -> None:
    for line in _lines("would remove" if dry_run else "removed", removed):
        note(line)


def document(throttle: "ReplicationThrottle") -> dict[str, object]:
    """As JSON has it."""
    return {
        "leader_rates": {str(node): rate for node, rate in throttle.leader_rates.items()},
        "follower_rates": {str(node): rate for node, rate in throttle.follower_rates.items()},
        "leader_replicas": {topic: list(items) for topic, items in throttle.leader_replicas.items()},
        "follower_replicas": {topic: list(items) for topic, items in throttle.follower_replicas.items()},
    }


def _lines(verb: str, throttle: "ReplicationThrottle", *, former: "ReplicationThrottle | None" = None) -> Iterable[str]:
    """One for each rate with its brokers, and for each list of a topic."""
    for side in ("leader", "follower"):
        rates: Mapping[int, int] = getattr(throttle, f"{side}_rates")
        old: Mapping[int, int] = {} if former is None else getattr(former, f"{side}_rates")
        for rate, was in sorted({(rate, old.get(node, rate)) for node, rate in rates.items()}):
            nodes = [str(node) for node, each in sorted(rates.items()) if (each, old.get(node, each)) == (rate, was)]
            change = "" if was == rate else f", which was {was}"
            yield f"{verb} {side}.replication.throttled.rate={rate} of {_brokers(nodes)}{change}"
    for side in ("leader", "follower"):
        lists: Mapping[str, tuple[str, ...]] = getattr(throttle, f"{side}_replicas")
        for topic, items in sorted(lists.items()):
            shown = ",".join(items) if len(items) <= ITEMS_SHOWN else plural(len(items), "replica")
            yield f"{verb} {side}.replication.throttled.replicas of {topic}: {shown}"


def _brokers(nodes: list[str]) -> str:
    return f"broker{'s' if len(nodes) > 1 else ''} {', '.join(nodes)}"
