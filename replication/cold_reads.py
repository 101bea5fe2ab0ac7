"""Records that may have to come from the disk are read once in the executor and thrown away, so that the read that counts,
on the event loop, finds them in the page cache.

What a disk gives back is not always what it was given: the CRCs are checked on this occasion, before anybody is sent the
records (R03 of the fault list).
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from kraftlog.proto.errors import CorruptRecordError, KraftlogError
from kraftlog.proto.records import check_crcs
from kraftlog.proto.seams import BlockingExecutor
from kraftlog.replication.partition import Partition


@dataclass(slots=True)
class ColdRange:
    """What is about to be read of a partition."""

    partition: Partition
    offset: int
    max_bytes: int
    end_offset: int


class ColdReads:
    """Used from one event loop."""

    def __init__(
        self, executor: BlockingExecutor, *, on_damage: Callable[[Partition, CorruptRecordError], None]
    ) -> None:
        """`on_damage`: the log of a partition is not what was written."""
        self._executor = executor
        self._on_damage = on_damage

    async def read(self, ranges: Sequence[ColdRange]) -> None:
        """Return when they are in the page cache, as far as they can be read at all."""
        if not ranges:
            return
        epochs = [each.partition.leader_epoch for each in ranges]
        found = await self._executor.run(lambda: [_damage(each) for each in ranges])
        for each, epoch, damage in zip(ranges, epochs, found, strict=True):
            # In another epoch the log may have been cut and written anew while it was read.
            if damage is not None and each.partition.leader_epoch == epoch:
                self._on_damage(each.partition, damage)


def _damage(cold: ColdRange) -> CorruptRecordError | None:
    log = cold.partition.log
    try:
        check_crcs(log.read(cold.offset, cold.max_bytes, end_offset=cold.end_offset).records)
    except CorruptRecordError as error:
        return CorruptRecordError(f"read from offset {cold.offset} on: {error}")
    except KraftlogError:
        return None  # the read that counts follows, and says what is wrong
    return None
