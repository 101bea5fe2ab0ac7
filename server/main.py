"""The node process: `python -m kraftlog.server.main --config server.properties`.

Prints one line on standard output when it serves, `kraftlog node 1 ready on HOST:PORT`, and nothing else there. SIGTERM
and SIGINT stop it in order (exit code 0); a second signal ends it at once. What stands in its way is one line on
standard error, without a traceback, and exit code 1.
"""

from kraftlog.proto import malloc

malloc.tune()  # before anything imports grpc

import argparse  # noqa: E402 (see the line above)
import asyncio  # noqa: E402
import contextlib  # noqa: E402
import gc  # noqa: E402
import logging  # noqa: E402
import os  # noqa: E402
import random  # noqa: E402
import signal  # noqa: E402
import sys  # noqa: E402
from collections.abc import Sequence  # noqa: E402
from dataclasses import replace  # noqa: E402
from pathlib import Path  # noqa: E402
from typing import NoReturn  # noqa: E402

from kraftlog.logstore import RealFileSystem  # noqa: E402
from kraftlog.proto.errors import KraftlogError  # noqa: E402
from kraftlog.server.config import NodeConfig  # noqa: E402
from kraftlog.server.config_file import read_node_config  # noqa: E402
from kraftlog.server.grpc import GrpcNetwork  # noqa: E402
from kraftlog.server.limits import raise_open_files_limit  # noqa: E402
from kraftlog.server.node import Node  # noqa: E402
from kraftlog.server.seams import SystemClock, ThreadExecutor  # noqa: E402
from kraftlog.server.stop_report import reported  # noqa: E402

logger = logging.getLogger("kraftlog.server")

_SIGNALS = (signal.SIGTERM, signal.SIGINT)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a node until a signal; returns the exit code."""
    parser = argparse.ArgumentParser(prog="kraftlog.server.main", description="Run a kraftlog node.")
    parser.add_argument("--config", required=True, type=Path, help="server.properties or node.toml")
    parser.add_argument("--log-level", default="INFO", choices=["DEBUG", "INFO", "WARNING", "ERROR"])
    parsed = parser.parse_args(arguments)
    logging.basicConfig(
        level=parsed.log_level,
        stream=sys.stderr,
        format="%(asctime)s %(levelname)s %(name)s: %(message)s",
    )
    runner = asyncio.Runner()  # not closed: the process ends with it, see `_end`
    try:
        return runner.run(_run(_within_limits(read_node_config(parsed.config))))
    except (KraftlogError, OSError) as error:
        print(f"kraftlog: error: {_one_line(error)}", file=sys.stderr)
        return 1


def _within_limits(config: NodeConfig) -> NodeConfig:
    """Raise the process's limit of open files, and leave half of it to connections."""
    most = raise_open_files_limit() // 2
    if config.log_max_open_files <= most:
        return config
    logger.warning(
        "log.max.open.files=%d is lowered to %d: raise the limit (ulimit -n)", config.log_max_open_files, most
    )
    return replace(config, log_max_open_files=most)


async def _run(config: NodeConfig) -> int:
    executor = ThreadExecutor(config.background_threads)
    node = Node(
        config,
        clock=SystemClock(),
        random=random.Random(os.urandom(32)),
        fs=RealFileSystem(),
        network=GrpcNetwork(),
        executor=executor,
    )
    stopping = asyncio.Event()
    _install_signal_handlers(stopping)
    try:
        if not await _start(node, stopping):
            logger.info("node %d stops before it has started", config.node_id)
            return 0
        gc.freeze()  # what exists by now lives as long as the process: keep it out of every collection
        print(f"kraftlog node {config.node_id} ready on {node.address}", flush=True)
        return await _serve(node, stopping)
    finally:
        await reported(node.stop(), f"node {config.node_id}")
        executor.close()


async def _start(node: Node, stopping: asyncio.Event) -> bool:
    """Start the node; false if a signal came first, since a node may wait for the others of its cluster for long."""
    loop = asyncio.get_running_loop()
    signalled = loop.create_task(stopping.wait())
    started = loop.create_task(node.start())
    try:
        await asyncio.wait((signalled, started), return_when=asyncio.FIRST_COMPLETED)
        if not started.done():
            return False
        started.result()
        return True
    finally:
        for task in (signalled, started):
            task.cancel()
        await asyncio.wait((signalled, started))


async def _serve(node: Node, stopping: asyncio.Event) -> int:
    """Wait for a signal or for the node's failure; returns the exit code."""
    loop = asyncio.get_running_loop()
    signalled = loop.create_task(stopping.wait())
    failed = loop.create_task(node.wait_failed())
    done, pending = await asyncio.wait((signalled, failed), return_when=asyncio.FIRST_COMPLETED)
    for task in pending:
        task.cancel()
    if failed in done:
        print(f"kraftlog: error: the node stops: {_one_line(failed.result())}", file=sys.stderr)
        return 1
    logger.info("node %d stops", node.config.node_id)
    return 0


def _install_signal_handlers(stopping: asyncio.Event) -> None:
    loop = asyncio.get_running_loop()

    def on_signal() -> None:
        if stopping.is_set():
            os._exit(1)
        stopping.set()

    for number in _SIGNALS:
        loop.add_signal_handler(number, on_signal)


def _one_line(error: Exception) -> str:
    text = error.message if isinstance(error, KraftlogError) else (getattr(error, "strerror", None) or str(error))
    return " ".join(text.split())


def _end(code: int) -> NoReturn:
    """Without taking down what Python and gRPC would: the logs are closed, and nothing is left to do. gRPC's threads may
    keep a loop or an interpreter that ends waiting for ever (its pull request 40989)."""
    logging.shutdown()
    with contextlib.suppress(OSError):  # whoever read it is gone
        sys.stdout.flush()
        sys.stderr.flush()
    os._exit(code)


if __name__ == "__main__":
    _end(main())
