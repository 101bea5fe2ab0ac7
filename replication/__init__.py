"""Partitions on a broker: leader and follower state, high watermark, in-sync replicas, delayed operations.

Read `partition` first: what may be acknowledged and shown. `replica_manager` makes partitions as the metadata say, and
appends, reads and waits; `flusher` is the group commit; `purgatory`, `delayed` and `timer` are requests that
wait. `partition`, `purgatory`, `delayed` and `timer` are pure: no event loop, clock or disk of their own.
"""

if __name__ != "kraftlog.replication":
    raise ImportError("import kraftlog.replication: replication/ is a folder of the checkout, not a module")
