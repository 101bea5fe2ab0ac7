"""The peers of this node in the metadata quorum: who is dialled, who is fed, and on which stream a message goes.

    voter        dials every other voter, and whoever is said to lead
    no vote      dials the leader; without one, the voters and bootstrap servers in turn, until one of them is fed by or
                 names the leader (KIP-595: an observer looks for the leader)

On a stream that was dialled, requests go out and their answers come back. A node that accepts a stream feeds its peer,
on that same stream, whenever it leads (`RaftCore.observe`); a voter is fed on the stream that the leader dials to it.
Every node repeats on each stream whom it takes for the leader, which is its sign of life as well.

Nothing here is reliable or in order across streams, and need not be: Raft repeats. Queues, accepted streams, waits and
reconnects have bounds (`PeersConfig`). A refusal (another cluster, another node, a replaced disk) is logged once, and
again only when its text changes.
"""

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Protocol

from kraftlog.kraft.endpoints import AddressBook, Endpoint
from kraftlog.kraft.raft import (
    AppendRequest,
    Message,
    ReplicaKey,
    SnapshotRequest,
    TimeoutNow,
    VoteRequest,
    Voters,
)
from kraftlog.kraft.wire import from_wire, to_wire
from kraftlog.proto.errors import (
    BrokerNotAvailableError,
    InvalidRequestError,
    InvalidVoterKeyError,
    KraftlogError,
    NetworkError,
    RequestTimedOutError,
    ThrottlingQuotaExceededError,
)
from kraftlog.proto.raft_frames import (
    EXCHANGE,
    RAFT_FRAMES,
    RaftBody,
    RaftHello,
    RaftHelloAnswer,
    RaftLeaderHint,
    RaftReadIndexRequest,
    RaftReadIndexResponse,
)
from kraftlog.proto.seams import CallContext, Clock, Connector, Handlers, Random, Stream
from kraftlog.server.quorum.hello import Identity, WrongNodeError, endpoint_of, key_of, leader_hint
from kraftlog.server.quorum.link import Link, first_frames

logger = logging.getLogger("kraftlog.server.quorum")

REQUESTS = (AppendRequest, VoteRequest, SnapshotRequest, TimeoutNow)


@dataclass(frozen=True, slots=True, kw_only=True)
class PeersConfig:
    """Bounds of the transport. Times in milliseconds."""

    silence_timeout_ms: float = 2_000
    """A stream without a message for so long is given up; a node without a leader looks elsewhere
    (`controller.quorum.fetch.timeout.ms`)."""
    keep_alive_ms: float = 500
    """Between signs of life on an idle stream. Below half of `silence_timeout_ms`."""
    hello_timeout_ms: float = 2_000
    """From dialling to the answer of the hello."""
    backoff_ms: float = 50
    """After the first failed attempt to connect; doubles with each further one."""
    backoff_max_ms: float = 1_000
    max_queue_bytes: int = 16 * 1024 * 1024
    """Of frames that wait for one peer: a full window of appends, and a snapshot chunk."""
    max_accepted: int = 1_000
    """Streams that other nodes have dialled."""
    max_pending_reads: int = 10_000
    """Read-index requests to the leader that wait for an answer."""

    def __post_init__(self) -> None:
        if not 0 < 2 * self.keep_alive_ms < self.silence_timeout_ms:
            raise ValueError(
                f"keep_alive_ms={self.keep_alive_ms} must be below half of silence_timeout_ms={self.silence_timeout_ms}"
            )
        if not 0 < self.backoff_ms <= self.backoff_max_ms:
            raise ValueError(f"backoff_ms={self.backoff_ms} is not within 0..backoff_max_ms={self.backoff_max_ms}")


class Replica(Protocol):
    """This node's Raft core as the transport sees it; `QuorumNode` is one."""

    @property
    def voters(self) -> Voters: ...

    @property
    def leader(self) -> ReplicaKey | None: ...

    @property
    def term(self) -> int: ...

    def receive(self, message: Message) -> None: ...

    def observe(self, key: ReplicaKey) -> None: ...

    def forget_observer(self, key: ReplicaKey) -> None: ...

    def answer_read_index(self, answer: Callable[[int | None], None]) -> None:
        """Call `answer`, now or later, with the offset that a linearizable read needs; None: not the leader."""
        ...


class Peers:
    """See the module. Used from one event loop: `serve` the handlers, `start`, `stop`."""

    def __init__(
        self,
        *,
        cluster_id: str,
        key: ReplicaKey,
        connector: Connector,
        clock: Clock,
        random: Random,
        addresses: AddressBook,
        endpoint: Endpoint | None = None,
        config: PeersConfig | None = None,
    ) -> None:
        """`endpoint`: where other nodes reach this one; may be set later with `advertise`, before `start`."""
        self._identity = Identity(cluster_id, key, endpoint)
        self._connector = connector
        self._clock = clock
        self._random = random
        self._addresses = addresses
        self._config = config or PeersConfig()
        self._replica: Replica | None = None
        self._dialled: dict[ReplicaKey, Link] = {}
        self._accepted: dict[ReplicaKey, Link] = {}
        self._greeting = 0
        """Accepted streams without a hello yet."""
        self._asked_on: dict[ReplicaKey, Link] = {}
        """Where the newest request of a peer came from: its answer goes there."""
        self._dials: dict[ReplicaKey, _Dial] = {}
        self._seeking: asyncio.Task[None] | None = None
        self._tending: asyncio.Task[None] | None = None
        self._changed = asyncio.Event()
        self._hint: RaftLeaderHint | None = None
        self._without_leader_since_ms: float | None = None
        self._own_addresses: set[Endpoint] = set() if endpoint is None else {endpoint}
        self._who_is_at: dict[Endpoint, ReplicaKey] = {}
        """At the bootstrap servers."""
        self._reads: dict[int, tuple[Link, asyncio.Future[int]]] = {}
        self._next_read_id = 1
        self._refusals = _Refusals()
        self.dropped_messages = 0
        """For which there was no stream, or no room in its queue."""

    @property
    def key(self) -> ReplicaKey:
        return self._identity.key

    @property
    def endpoint(self) -> Endpoint | None:
        """Where other nodes reach this one."""
        return self._identity.endpoint

    @property
    def addresses(self) -> AddressBook:
        return self._addresses

    @property
    def connected(self) -> frozenset[ReplicaKey]:
        """To whom there is a stream, in either direction."""
        return frozenset({*self._dialled, *self._accepted})

    def advertise(self, endpoint: Endpoint) -> None:
        """Where other nodes reach this one, once its listener has a port."""
        self._identity = Identity(self._identity.cluster_id, self._identity.key, endpoint)
        self._own_addresses.add(endpoint)

    def handlers(self) -> Handlers:
        """For the listener. Streams are refused before `start` and after `stop`; the dialler comes again."""
        return Handlers(streams={EXCHANGE: self.exchange})

    # --- life ---------------------------------------------------------------------------------------------------

    def start(self, replica: Replica) -> None:
        """Begin to dial and to accept."""
        assert self._replica is None, "started twice"
        self._replica = replica
        self._tending = asyncio.get_running_loop().create_task(self._tend(), name="quorum-peers")

    async def stop(self) -> None:
        """Close every stream. May be repeated."""
        self._replica = None
        tasks = [dial.task for dial in self._dials.values()]
        tasks += [task for task in (self._seeking, self._tending) if task is not None]
        self._dials.clear()
        self._seeking = self._tending = None
        for link in [*self._dialled.values(), *self._accepted.values()]:
            link.close()
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)

    def changed(self) -> None:
        """The voters or the leader may have changed: look at whom to dial, and tell the peers."""
        self._changed.set()

    async def _tend(self) -> None:
        loop = asyncio.get_running_loop()
        keep_alive_s = self._config.keep_alive_ms / 1000
        told: object = None
        while (replica := self._replica) is not None:
            self._changed.clear()
            self._reconcile(replica)
            hint = self._own_hint(replica)
            links = [*self._dialled.values(), *self._accepted.values()]
            if (hint.term, hint.node_id) != told:
                told = hint.term, hint.node_id
                for link in links:
                    link.offer(hint)
            now_s = alive_s = loop.time()  # alive_s: since when somebody has been told nothing
            for link in links:
                # Together, instead of waking for each link at its own time.
                if now_s - link.spoke_s >= keep_alive_s / 2:
                    link.offer(hint)
                else:
                    alive_s = min(alive_s, link.spoke_s)
            await _wait_or_pass(self._changed, 1000 * (alive_s + keep_alive_s - now_s))

    def _own_hint(self, replica: Replica) -> RaftLeaderHint:
        leader = replica.leader
        if leader is None:
            return leader_hint(replica.term, None, None)
        own = leader == self.key
        return leader_hint(replica.term, leader, self._identity.endpoint if own else self._addresses.endpoint(leader))

    # --- whom to dial -------------------------------------------------------------------------------------------

    def _wanted(self, replica: Replica) -> set[ReplicaKey]:
        wanted = set(replica.voters) if self.key in replica.voters else set()
        leader = replica.leader
        if self._hint is not None and self._hint.term >= replica.term + (leader is not None):
            leader = key_of(self._hint)  # of this term only where the leader itself has not been heard
        if leader is not None:
            wanted.add(leader)
        return wanted - {self.key}

    def _reconcile(self, replica: Replica) -> None:
        wanted = self._wanted(replica)
        loop = asyncio.get_running_loop()
        for key in [key for key, dial in self._dials.items() if dial.task.done()]:
            failed = self._dials.pop(key).task  # by a bug: it is reported, and must not cost the node this peer
            if not failed.cancelled():
                logger.error("dialling node %d failed", key.node_id, exc_info=failed.exception())
        for key in sorted(wanted - self._dials.keys()):
            wake = asyncio.Event()
            self._dials[key] = _Dial(loop.create_task(self._dial(key, wake), name=f"dial node {key.node_id}"), wake)
        for key in [key for key in self._dials if key not in wanted]:
            self._dials.pop(key).task.cancel()
        now_ms = self._clock.monotonic_ms()
        must_seek = self._must_seek(replica, now_ms)
        if must_seek and self._seeking is None:
            self._seeking = loop.create_task(self._seek(), name="seek the leader")
        for key, link in self._dialled.items():
            is_fresh = now_ms - link.opened_ms < self._config.silence_timeout_ms
            if key not in wanted and not (must_seek and is_fresh):
                link.close()

    def _must_seek(self, replica: Replica, now_ms: float) -> bool:
        """An observer seeks whenever it has no stream to a leader: where the old one has died, the others will soon know
        the next. A voter dials the others anyway, and seeks after a while without a leader: it may have been removed by
        voters that it has never heard of."""
        leader = replica.leader
        is_voter = self.key in replica.voters
        if leader is not None and (is_voter or leader == self.key or leader in self.connected):
            self._without_leader_since_ms = None
            return False
        if self._without_leader_since_ms is None:
            self._without_leader_since_ms = now_ms
        patience_ms = 2 * self._config.silence_timeout_ms if is_voter else 0
        return now_ms - self._without_leader_since_ms >= patience_ms

    async def _dial(self, key: ReplicaKey, wake: asyncio.Event) -> None:
        """Keep a stream to `key`, until cancelled. Where its address is unknown, or of no use, it may be the one at a
        bootstrap address; whoever else listens there refuses."""
        backoff_ms = self._config.backoff_ms
        while True:
            known = self._addresses.candidates(key)
            for address in dict.fromkeys((*known, *self._addresses.bootstrap_servers)):
                if key in self._dialled or address in self._own_addresses:
                    continue
                if await self._converse(address, key, is_guess=address not in known):
                    backoff_ms = self._config.backoff_ms
                    break
            wake.clear()
            await _wait_or_pass(wake, backoff_ms * (0.5 + self._random.random() / 2))
            backoff_ms = min(2 * backoff_ms, self._config.backoff_max_ms)

    async def _seek(self) -> None:
        """Connect to one node after the other while no leader is known."""
        turn = 0
        backoff_ms = self._config.backoff_ms
        try:
            while (replica := self._replica) is not None and self._must_seek(replica, self._clock.monotonic_ms()):
                addresses = self._places_to_seek(replica)
                if addresses and await self._converse(addresses[turn % len(addresses)], None, is_guess=True):
                    backoff_ms = self._config.backoff_ms
                turn += 1
                await asyncio.sleep(backoff_ms * (0.5 + self._random.random() / 2) / 1000)
                backoff_ms = min(2 * backoff_ms, self._config.backoff_max_ms)
        finally:
            self._seeking = None

    def _places_to_seek(self, replica: Replica) -> list[Endpoint]:
        found: dict[Endpoint, None] = {}
        for key in sorted(replica.voters - {self.key} - self._dialled.keys()):
            found.update(dict.fromkeys(self._addresses.candidates(key)))
        found.update(dict.fromkeys(self._addresses.bootstrap_servers))
        taken = {address for address, key in self._who_is_at.items() if key in self._dialled}
        return [address for address in found if address not in self._own_addresses | taken]

    # --- streams ------------------------------------------------------------------------------------------------

    async def _converse(self, address: Endpoint, expected: ReplicaKey | None, *, is_guess: bool) -> bool:
        """Dial, and exchange frames until the stream ends. Whether there was a peer to talk to.

        `expected`: None takes whoever is there. `is_guess`: a refusal because it is somebody else is no news.
        """
        channel = self._connector.connect(str(address))
        stream: Stream | None = None
        link: Link | None = None
        try:
            stream = channel.stream(EXCHANGE)
            key, told_at, frames = await self._greet(stream, expected)
            if key == self.key:
                self._own_addresses.add(address)
                return False
            if address in self._addresses.bootstrap_servers:
                self._who_is_at[address] = key
            self._addresses.tell(key, told_at or address)
            link = self._dialled_now(stream, key)
            self._refusals.forget(address)
            receive = partial(self._receive, link)
            for body in frames:
                receive(body)
            await link.run(receive)
        except KraftlogError as error:
            if not (is_guess and isinstance(error, InvalidVoterKeyError)):
                self._refusals.note(address, error)
        finally:
            if stream is not None:
                stream.cancel()
            if link is not None:
                self._closed(link)
            await channel.close()
        return link is not None

    def _dialled_now(self, stream: Stream, key: ReplicaKey) -> Link:
        """Of several streams to one peer only the newest counts, as at its end."""
        if key in self._dialled:
            self._dialled[key].close()
        link = self._dialled[key] = self._make_link(stream, key)
        self.changed()
        return link

    async def _greet(
        self, stream: Stream, expected: ReplicaKey | None
    ) -> tuple[ReplicaKey, Endpoint | None, list[RaftBody]]:
        """Who answered, where it says it listens, and the frames that came with the answer."""
        replica = self._replica
        is_voter = replica is not None and self.key in replica.voters
        scope = asyncio.timeout(self._config.hello_timeout_ms / 1000)
        try:
            async with scope:
                await stream.send(RAFT_FRAMES.encode(self._identity.hello(expected, is_voter=is_voter)))
                frames = await first_frames(stream, self._config.hello_timeout_ms)
        except TimeoutError:
            if not scope.expired():
                raise
            raise RequestTimedOutError(f"no connection within {self._config.hello_timeout_ms:.0f} ms") from None
        key, told_at = self._identity.check_answer(frames[0] if frames else None, expected)
        return key, told_at, frames[1:]

    async def exchange(self, stream: Stream, context: CallContext) -> None:
        """The handler of a stream that another node dialled."""
        frames = await self._first_frames(stream)
        replica = self._replica
        if replica is None:
            raise BrokerNotAvailableError(f"node {self.key.node_id} takes no part in the quorum at the moment")
        try:
            key, endpoint = self._identity.check_hello(frames[0] if frames else None)
            self._check_room(len(self._accepted.keys() - {key}))
            await stream.send(RAFT_FRAMES.encode(self._identity.answer()) + RAFT_FRAMES.encode(self._own_hint(replica)))
            if key == self.key:
                return  # it has dialled itself, and knows that now
            if self._replica is not replica:
                raise BrokerNotAvailableError(f"node {self.key.node_id} is stopping")
            if endpoint is not None:
                self._addresses.tell(key, endpoint)
            await self._feed(replica, self._make_link(stream, key), frames[1:])
        except WrongNodeError:
            raise  # the dialler knows whether its address was a guess
        except KraftlogError as error:
            self._refusals.note(self._whom(frames, context), error)
            raise

    async def _first_frames(self, stream: Stream) -> list[RaftBody]:
        self._check_room(self._greeting)
        self._greeting += 1
        try:
            return await first_frames(stream, self._config.hello_timeout_ms)
        finally:
            self._greeting -= 1

    def _check_room(self, count: int) -> None:
        if count >= self._config.max_accepted:
            raise ThrottlingQuotaExceededError(
                f"node {self.key.node_id} has {count} peers, the limit is {self._config.max_accepted}"
            )

    @staticmethod
    def _whom(frames: list[RaftBody], context: CallContext) -> str:
        """For the log, and the same for each attempt of one peer."""
        hello = frames[0] if frames else None
        return f"node {hello.node_id}" if isinstance(hello, RaftHello) else context.peer.rpartition(":")[0]

    async def _feed(self, replica: Replica, link: Link, frames: list[RaftBody]) -> None:
        """Of several streams from one peer only the newest counts: it has given up the others."""
        key = link.peer
        if key in self._accepted:
            self._accepted[key].close()
        self._accepted[key] = link
        self._refusals.forget(f"node {key.node_id}")
        if key in self._dials:
            self._dials[key].wake.set()  # it is up: no need to wait
        replica.observe(key)
        receive = partial(self._receive, link)
        try:
            for body in frames:
                receive(body)
            await link.run(receive)
        finally:
            self._closed(link)

    def _make_link(self, stream: Stream, key: ReplicaKey) -> Link:
        return Link(
            stream,
            key,
            max_queue_bytes=self._config.max_queue_bytes,
            silence_timeout_ms=self._config.silence_timeout_ms,
            opened_ms=self._clock.monotonic_ms(),
        )

    def _closed(self, link: Link) -> None:
        link.close()
        key = link.peer
        if self._asked_on.get(key) is link:
            del self._asked_on[key]
        if self._dialled.get(key) is link:
            del self._dialled[key]
            if key in self._dials:
                self._dials[key].wake.set()
        if self._accepted.get(key) is link:
            del self._accepted[key]
            if self._replica is not None:
                self._replica.forget_observer(key)
        for read_id in [read_id for read_id, (asked, _) in self._reads.items() if asked is link]:
            self._end_read(read_id, NetworkError(f"the stream to node {key.node_id} ended"))
        self.changed()

    # --- messages -----------------------------------------------------------------------------------------------

    def send(self, message: Message) -> None:
        """Give a message of the core to the transport; it may get lost."""
        link = self._link_for(message)
        if link is None or not link.offer(to_wire(message)):
            self.dropped_messages += 1

    def _link_for(self, message: Message) -> Link | None:
        key = message.dst
        if not isinstance(message, REQUESTS) and key in self._asked_on:
            return self._asked_on[key]
        return self._dialled.get(key) or self._accepted.get(key)

    def _receive(self, link: Link, body: RaftBody) -> None:
        """One frame. Raises `InvalidRequestError`, which ends the stream."""
        replica = self._replica
        if replica is None or link.is_closed:
            return
        match body:
            case RaftLeaderHint():
                self._on_hint(replica, body)
            case RaftReadIndexRequest():
                replica.answer_read_index(partial(self._answer_read, link, body.request_id))
            case RaftReadIndexResponse():
                self._on_read_answer(body)
            case RaftHello() | RaftHelloAnswer():
                raise InvalidRequestError(f"node {link.peer.node_id} said hello twice")
            case _:
                message = from_wire(body, link.peer, self.key)
                if message is not None:
                    if isinstance(message, REQUESTS):
                        self._asked_on[link.peer] = link
                    replica.receive(message)

    def _on_hint(self, replica: Replica, hint: RaftLeaderHint) -> None:
        if hint.node_id < 0 or hint.term < replica.term or (self._hint is not None and hint.term < self._hint.term):
            return
        key, endpoint = key_of(hint), endpoint_of(hint)
        if endpoint is not None and not self._addresses.candidates(key):
            self._addresses.tell(key, endpoint)
        if self._hint is None or (hint.term, key) != (self._hint.term, key_of(self._hint)):
            self._hint = hint
            self.changed()

    # --- reads --------------------------------------------------------------------------------------------------

    async def read_index(self, leader: ReplicaKey) -> int:
        """Ask the leader for the offset that a linearizable read needs. Raises `NetworkError` where no answer comes; the
        caller has a deadline. May be repeated."""
        link = self._dialled.get(leader) or self._accepted.get(leader)
        if link is None:
            raise NetworkError(f"no stream to node {leader.node_id}")
        if len(self._reads) >= self._config.max_pending_reads:
            raise ThrottlingQuotaExceededError(f"{len(self._reads)} reads wait for the leader of the metadata quorum")
        read_id, self._next_read_id = self._next_read_id, self._next_read_id + 1
        future: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        self._reads[read_id] = (link, future)
        try:
            if not link.offer(RaftReadIndexRequest(read_id)):
                raise NetworkError(f"the queue to node {leader.node_id} is full")
            return await future
        finally:
            self._reads.pop(read_id, None)

    def _answer_read(self, link: Link, request_id: int, offset: int | None) -> None:
        link.offer(RaftReadIndexResponse(request_id, -1 if offset is None else offset))

    def _on_read_answer(self, body: RaftReadIndexResponse) -> None:
        if body.offset < 0:
            self._end_read(body.request_id, NetworkError("the node that was asked for a read does not lead"))
        elif body.request_id in self._reads:
            future = self._reads[body.request_id][1]
            if not future.done():
                future.set_result(body.offset)

    def _end_read(self, read_id: int, error: KraftlogError) -> None:
        _, future = self._reads.pop(read_id, (None, None))
        if future is not None and not future.done():
            future.set_exception(error)


@dataclass(slots=True)
class _Dial:
    task: asyncio.Task[None]
    wake: asyncio.Event
    """Ends the wait before the next attempt."""


class _Refusals:
    """What went wrong with whom. A refusal is logged when its text is new, a peer that cannot be reached once until it
    can be again. Bounded."""

    MAX = 1_000

    def __init__(self) -> None:
        self._texts: dict[object, str] = {}

    def note(self, whom: object, error: KraftlogError) -> None:
        text = "" if error.retriable else str(error)
        known = self._texts.get(whom)
        if known is not None and text in ("", known):
            return
        if known is None and len(self._texts) >= self.MAX:
            del self._texts[next(iter(self._texts))]
        self._texts[whom] = text
        logger.log(logging.INFO if error.retriable else logging.WARNING, "quorum peer %s: %s", whom, error)

    def forget(self, whom: object) -> None:
        self._texts.pop(whom, None)


async def _wait_or_pass(event: asyncio.Event, timeout_ms: float) -> None:
    """Until the event is set, at most so long, but a millisecond at least: deadlines are compared with a clock that need
    not be the loop's to the last digit."""
    scope = asyncio.timeout(max(timeout_ms, 1) / 1000)
    try:
        async with scope:
            await event.wait()
    except TimeoutError:
        if not scope.expired():
            raise
