"""Partitions on a broker: leader and follower state, high watermark, in-sync replicas, delayed operations."""

if __name__ != "kraftlog.replication":
    raise ImportError("import kraftlog.replication: replication/ is a folder of the checkout, not a module")
