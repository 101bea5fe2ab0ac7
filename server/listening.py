"""The open listeners of a node, and the networks through which it reaches others.

Each listener name has one security (made from the `ssl.` keys as they hold for it) for both directions: what comes in
through the node's own listener of that name, and what goes out to other nodes' listeners of that name. So controllers are
dialled through `network(plan.controller_name)`, other brokers through `network(plan.inter_broker.name)`.
"""

import asyncio
import socket
from collections.abc import Mapping
from dataclasses import replace
from functools import partial

from kraftlog.proto.seams import (
    BlockingExecutor,
    CallContext,
    Handlers,
    Network,
    Payload,
    Server,
    Stream,
    StreamHandler,
    UnaryHandler,
)
from kraftlog.server.config import NodeConfig
from kraftlog.server.listeners import Listener
from kraftlog.server.tls import listener_security

ANY_HOST = frozenset({"", "0.0.0.0", "::", "[::]"})


class Listening:
    """Used from one event loop: `prepare`, then `open` once, `stop` at the end, also after a failed start."""

    def __init__(self, config: NodeConfig, network: Network) -> None:
        self.plan = config.listener_plan
        self._config = config
        self._network = network
        self._networks: dict[str, Network] = {}
        self._servers: dict[str, Server] = {}

    async def prepare(self, executor: BlockingExecutor) -> None:
        """Read keys and certificates. Raises `InvalidConfigError` with the key and the file that are wrong."""
        names = dict.fromkeys((*(listener.name for listener in self.plan.listeners), self.plan.controller_name))
        for name in names:
            security = await executor.run(partial(listener_security, self._config, name))
            self._networks[name] = self._network if security is None else self._network.secured(security)

    def network(self, name: str) -> Network:
        """The network on which listeners of this name are, here and on other nodes. After `prepare`."""
        return self._networks[name]

    async def open(self, *, broker: Handlers, controller: Handlers) -> None:
        """Open every listener with the handlers that are for it. Raises `OSError` for a taken address."""
        for listener in self.plan.listeners:
            parts = [broker] if listener in self.plan.broker_listeners else []
            parts += [controller] if listener in self.plan.controller_listeners else []
            handlers = _at(listener.name, parts)
            self._servers[listener.name] = await self.network(listener.name).serve(listener.address, handlers)

    @property
    def bound(self) -> Mapping[str, str]:
        """The `host:port` that each open listener is bound to, by name."""
        return {name: server.address for name, server in self._servers.items()}

    def endpoint(self, name: str) -> Listener:
        """What others are told of an open listener: the advertised one, with the bound port where it says 0."""
        bound_host, _, bound_port = self._servers[name].address.rpartition(":")
        advertised = self.plan.advertised_of(name)
        host = advertised.host if advertised is not None else bound_host
        port = advertised.port if advertised is not None else 0
        return Listener(name, socket.gethostname() if host in ANY_HOST else host, port or int(bound_port))

    async def stop(self, grace_ms: float) -> None:
        """Refuse new calls, wait up to `grace_ms` for running ones, then drop them. May be repeated."""
        await asyncio.gather(*(server.stop(grace_ms) for server in self._servers.values()))


def _at(name: str, parts: list[Handlers]) -> Handlers:
    """All handlers of one listener, told the name of it."""

    def unary(handler: UnaryHandler) -> UnaryHandler:
        async def call(data: bytes, context: CallContext) -> Payload:
            return await handler(data, replace(context, listener=name))

        return call

    def stream(handler: StreamHandler) -> StreamHandler:
        async def call(stream: Stream, context: CallContext) -> None:
            await handler(stream, replace(context, listener=name))

        return call

    return Handlers(
        unary={method: unary(handler) for part in parts for method, handler in part.unary.items()},
        streams={method: stream(handler) for part in parts for method, handler in part.streams.items()},
    )
