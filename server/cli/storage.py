"""`kraftctl storage`: log directories before a node uses them, as Kafka's `kafka-storage`."""

from pathlib import Path

import click

from kraftlog.proto.errors import InvalidConfigError
from kraftlog.sdk.cli.exit_codes import ExitCode
from kraftlog.sdk.cli.options import format_option
from kraftlog.sdk.cli.output import print_json
from kraftlog.sdk.cli.report import CommandError
from kraftlog.server.cli.cluster_id import check_cluster_id, random_uuid

META_PROPERTIES = "meta.properties"

config_option = click.option(
    "--config",
    "-c",
    "path",
    required=True,
    type=click.Path(dir_okay=False, path_type=Path),
    help="The node's server.properties.",
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
@click.option("--ignore-formatted", is_flag=True, help="Succeed without a change where it is formatted already.")
@format_option
def format_storage(path: Path, cluster_id: str | None, ignore_formatted: bool, output_format: str) -> None:
    """Make the log directory of a node. A directory that belongs to a cluster is never formatted again."""
    from kraftlog.proto.properties import read_properties
    from kraftlog.server.config import NodeConfig

    config = NodeConfig.from_properties(read_properties(path))
    directory = Path(config.log_dir)
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
        format_directory(directory, cluster_id=made, node_id=config.node_id)
    if output_format == "json":
        print_json(
            {"log_dir": str(directory), "cluster_id": made, "node_id": config.node_id, "formatted": existing is None}
        )
        return
    word = "is formatted already" if existing else "formatted"
    click.echo(f"{directory} {word} for node {config.node_id} of cluster {made}")


def format_directory(directory: Path, *, cluster_id: str, node_id: int) -> None:
    """Make a log directory that belongs to this node of this cluster."""
    from kraftlog.logstore import format_log_dir
    from kraftlog.logstore.filesystem import RealFileSystem

    check_cluster_id(cluster_id)
    if directory.exists() and any(directory.iterdir()):
        raise CommandError(
            f"{directory} is not empty and has no {META_PROPERTIES}",
            exit_code=ExitCode.CONFLICT,
            advice="Name an empty directory.",
        )
    directory.mkdir(parents=True, exist_ok=True)
    format_log_dir(str(directory), RealFileSystem(), cluster_id=cluster_id, node_id=node_id, directory_id=random_uuid())


def cluster_id_of(directory: Path) -> str | None:
    """The cluster that a log directory belongs to, or None if it is not formatted."""
    from kraftlog.proto.properties import read_properties

    meta = directory / META_PROPERTIES
    if not meta.exists():
        return None
    pairs = read_properties(meta)
    if "cluster.id" not in pairs:
        raise InvalidConfigError(f"{meta} has no cluster.id: the file is damaged")
    return pairs["cluster.id"]
