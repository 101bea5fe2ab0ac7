"""`kraftctl storage`: log directories before a node uses them, as Kafka's `kafka-storage`."""

import time
from pathlib import Path
from typing import TYPE_CHECKING

import click

from kraftlog.proto.errors import InvalidConfigError
from kraftlog.sdk.cli.exit_codes import ExitCode
from kraftlog.sdk.cli.options import format_option
from kraftlog.sdk.cli.output import print_json
from kraftlog.sdk.cli.report import CommandError
from kraftlog.server.cli.cluster_id import check_cluster_id, random_uuid

if TYPE_CHECKING:
    from kraftlog.server.first_voters import FirstVoters

META_PROPERTIES = "meta.properties"
METADATA_LOG = "__cluster_metadata-0"

config_option = click.option(
    "--config",
    "-c",
    "path",
    required=True,
    type=click.Path(dir_okay=False, path_type=Path),
    help="The node's configuration: a .properties or a .toml file.",
)


@click.group()
def storage() -> None:
    """Format a node's log directory."""


@storage.command("random-uuid")
@format_option
def print_uuid(output_format: str) -> None:
    """Print a fresh cluster id."""
    made = random_uuid()
    if output_format == "json":
        print_json({"cluster_id": made})
    else:
        click.echo(made)


@storage.command("format")
@config_option
@click.option("--cluster-id", "-t", help="The id that all nodes of a cluster share; default: a fresh one.")
@click.option("--standalone", "-s", is_flag=True, help="This controller is the first voter, and the only one.")
@click.option(
    "--initial-controllers",
    "-I",
    metavar="ID@HOST:PORT:DIRECTORY_ID,...",
    help="The first voters; the same text on each of them. The ids: storage random-uuid.",
)
@click.option(
    "--no-initial-controllers", "-N", is_flag=True, help="The node joins a quorum that exists, at first without a vote."
)
@click.option("--ignore-formatted", "-g", is_flag=True, help="Succeed without a change where it is formatted already.")
@format_option
def format_storage(
    path: Path,
    cluster_id: str | None,
    standalone: bool,
    initial_controllers: str | None,
    no_initial_controllers: bool,
    ignore_formatted: bool,
    output_format: str,
) -> None:
    """Make the log directory of a node. A directory that belongs to a cluster is never formatted again.

    A controller has to know who votes first, unless it is the only one; a node that is only a broker never votes.

    \b
    Examples:
      kraftctl storage format -c server.properties
      kraftctl storage format -c node.toml -t CLUSTER_ID --no-initial-controllers
      kraftctl storage format -c node.toml -t CLUSTER_ID -I 1@host-1:9093:DIRECTORY_ID_1,2@host-2:9093:DIRECTORY_ID_2
    """
    from kraftlog.server.config_file import read_node_config
    from kraftlog.server.first_voters import choose_first_voters

    config = read_node_config(path)
    directory = Path(config.log_dir)
    chosen = choose_first_voters(
        config,
        fresh_directory_id=random_uuid(),
        standalone=standalone,
        initial_controllers=initial_controllers,
        no_initial_controllers=no_initial_controllers,
    )
    existing = cluster_id_of(directory)
    if existing is not None:
        if not ignore_formatted or cluster_id not in (None, existing):
            raise CommandError(
                f"{directory} is formatted already, for cluster {existing}",
                exit_code=ExitCode.CONFLICT,
                advice="Start the node as it is, or name another log.dirs.",
            )
        made = existing
    else:
        made = cluster_id or random_uuid()
        format_directory(directory, cluster_id=made, node_id=config.node_id, chosen=chosen)
    directory_id = directory_id_of(directory)
    if output_format == "json":
        print_json(
            {
                "log_dir": str(directory),
                "cluster_id": made,
                "node_id": config.node_id,
                "directory_id": directory_id,
                "voters": sorted(key.node_id for key in chosen.voters) if existing is None else None,
                "formatted": existing is None,
            }
        )
        return
    word = "is formatted already" if existing else "formatted"
    click.echo(f"{directory} {word} for node {config.node_id} of cluster {made} (directory {directory_id})")


def format_directory(directory: Path, *, cluster_id: str, node_id: int, chosen: "FirstVoters") -> None:
    """Make a log directory that belongs to this node of this cluster. May be repeated after a crash."""
    from kraftlog.logstore.filesystem import RealFileSystem
    from kraftlog.server.storage import format_node_directory

    check_cluster_id(cluster_id)
    if directory.exists() and any(not _is_left_by_a_crash(entry) for entry in directory.iterdir()):
        raise CommandError(
            f"{directory} is not empty and has no {META_PROPERTIES}",
            exit_code=ExitCode.CONFLICT,
            advice="Name an empty directory.",
        )
    directory.mkdir(parents=True, exist_ok=True)
    format_node_directory(
        str(directory),
        RealFileSystem(),
        cluster_id=cluster_id,
        node_id=node_id,
        directory_id=chosen.directory_id,
        voters=chosen.voters,
        timestamp_ms=time.time_ns() // 1_000_000,
    )


def _is_left_by_a_crash(entry: Path) -> bool:
    """What comes before meta.properties: the metadata log, which says itself whether a node has used it."""
    return entry.name == METADATA_LOG or entry.name.startswith(META_PROPERTIES)


def cluster_id_of(directory: Path) -> str | None:
    """The cluster that a log directory belongs to, or None if it is not formatted."""
    pairs = _meta_of(directory)
    if pairs is None:
        return None
    if "cluster.id" not in pairs:
        raise InvalidConfigError(f"{directory / META_PROPERTIES} has no cluster.id: the file is damaged")
    return pairs["cluster.id"]


def directory_id_of(directory: Path) -> str:
    """The id of a formatted log directory."""
    return (_meta_of(directory) or {}).get("directory.id", "")


def _meta_of(directory: Path) -> dict[str, str] | None:
    from kraftlog.proto.properties import read_properties

    meta = directory / META_PROPERTIES
    return read_properties(meta) if meta.exists() else None
