"""`kraftctl cluster`: a local cluster in the background, for development and tests.

`bootstrap` is the one command between `pip install` and the first record. It may be given again at any time: a running
cluster stays as it is, a stopped one is started with its data.
"""

import click

from kraftlog.sdk.cli.lazy import Entry, LazyGroup

_COMMANDS = {
    "bootstrap": Entry(
        "kraftlog.server.cli.cluster_bootstrap:bootstrap", "Format and start a local cluster, or let it grow."
    ),
    "status": Entry("kraftlog.server.cli.cluster_status:status", "Show nodes, processes and the metadata quorum."),
    "stop": Entry("kraftlog.server.cli.cluster_life:stop", "Stop the local cluster or some of its nodes."),
    "restart": Entry("kraftlog.server.cli.cluster_life:restart", "Restart the local cluster, also node by node."),
}


@click.command(cls=LazyGroup, entries=_COMMANDS)
def cluster() -> None:
    """Start, stop and look at a local cluster."""
