"""Log compaction: of the records with one key, the latest stays; offsets never change.

`dirtiness` says how much of a log is to be compacted and `manager` which log comes next; `cleaning_pass` goes through one
log in bounded steps; `batch_cleaner` decides about each batch, `transactions` about those of transactions. Nothing here
reads a clock, waits or starts threads: whoever drives it does (`kraftlog.replication.cleaner`).
"""

from kraftlog.logstore.cleaning.cleaning_pass import CleaningPass, Step
from kraftlog.logstore.cleaning.dirtiness import Dirtiness, look_for_dirt
from kraftlog.logstore.cleaning.manager import CleanerManager, Uncleanable

__all__ = [
    "CleanerManager",
    "CleaningPass",
    "Dirtiness",
    "Step",
    "Uncleanable",
    "look_for_dirt",
]
