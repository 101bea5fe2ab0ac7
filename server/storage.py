"""Making the log directory of a node: who its cluster, its node and the first voters of the metadata quorum are."""

import os
from collections.abc import Mapping

from kraftlog.kraft.controller import SUPPORTED_FEATURES
from kraftlog.kraft.endpoints import Endpoint
from kraftlog.kraft.log_adapter import format_metadata_log
from kraftlog.kraft.raft import ReplicaKey
from kraftlog.logstore import FileSystem, format_log_dir, layout

Voters = Mapping[ReplicaKey, Endpoint | None]
"""The first voters of a cluster, and where they listen; the same on each of its nodes. None: where a voter that is alone
listens, it says itself when it leads."""


def format_node_directory(
    path: str,
    fs: FileSystem,
    *,
    cluster_id: str,
    node_id: int,
    directory_id: str,
    voters: Voters | None,
    timestamp_ms: int,
) -> None:
    """Make `path` the log directory of a node that has never started. Durable on return. Blocks.

    `voters`: empty for a node that joins a quorum which exists, or that never votes; None for a controller that is alone
    and learns where it listens when it starts. May be repeated after a crash. Raises `InconsistentClusterIdError` if the
    directory belongs to another cluster or node, `StorageError` if a node has used it.
    """
    fs.mkdir(path)
    if voters is not None and fs.size(os.path.join(path, layout.META_PROPERTIES_FILE)) is None:
        # First: what has no meta.properties is formatted again as a whole.
        format_metadata_log(
            fs,
            path,
            voters=frozenset(voters),
            endpoints={key: endpoint for key, endpoint in voters.items() if endpoint is not None},
            feature_levels={name: feature.max_level for name, feature in SUPPORTED_FEATURES.items()},
            timestamp_ms=timestamp_ms,
        )
    format_log_dir(path, fs, cluster_id=cluster_id, node_id=node_id, directory_id=directory_id)
