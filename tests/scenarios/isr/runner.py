"""Scenarios of one replicated partition: commands, a line of dashes, and what they bring about.

    python -m tests.scenarios.isr.runner --rewrite     write the outcomes into the files; explain each changed line

Brokers 1, 2, 3, ... have a replica each, with the real log, partition and stream; the controller is the real one. Nothing
happens by itself. Commands, one a line; blocks end with `----` and the outcome, up to a blank line. `#` starts a comment.

    brokers 3 [min.insync.replicas=2] [flush.policy=ack] [...]     the topic's configs; broker 1 leads
    write 1 a b [acks=-1]          as records of their own
    flush 1 2                      what is in memory goes to the disk
    copy 2 3                       they exchange what there is to say with their leader, until both are silent; no flush
    sync                           brokers that are up learn the metadata, copy and flush, until nothing moves
    send 2 / arrive 2 / reply 2 / take 2
                                   a step of `copy`: what broker 2 has to say sets out, arrives at its leader; the leader's
                                   answer sets out, arrives
    break 2                        the stream to its leader
    learn 2 [count=1]              the metadata (one version of them)
    learn-at-once 2                the same in one step, of which only the end is seen
    alive 1 2                      a heartbeat
    wait 4000 [alive=(1,2)]        time passes; these brokers (else all that are up) send heartbeats
    propose 1 [fate=request-lost|request-late|answer-lost|undone]
                                   the leader asks for the ISR that is due, if one is
    late                           a late request arrives at the controller
    fail-over                      another controller
    kill 1 / power 1 / stop 1 / lose-disk 1 / start 1
    damage 1                       a reader meets a wrong CRC in the log of broker 1, which its next heartbeat tells
    elect preferred|unclean
    policy ack|interval            the topic's flush.policy
    minimum 2                      the topic's min.insync.replicas
    delete 1 3                     the records before offset 3
    compact 1                      what is committed there; a record's key is the first letter of its value
    isr                            what the controller has
    logs                           value/epoch of each record; `|` is the high watermark, `!` the end of what is on disk
    heal                           no faults any more, until all replicas are equal

What the world of the random runs (tests/sim/replicas) checks is checked after every command: a promise that does not hold
appears as `BROKEN`.
"""

import random
import re
import sys
from collections.abc import Callable, Iterable
from pathlib import Path

from kraftlog.proto.replica_frames import (
    ReplicaBody,
    ReplicaDivergence,
    ReplicaFollow,
    ReplicaProgress,
    ReplicaRecords,
    ReplicaRefusal,
    ReplicaReport,
)
from tests.sim.replicas.runs import Mode, Run, compact, flush, pump
from tests.sim.replicas.world import Fate, Node, Stream, Violation, World, readable

FOLDER = Path(__file__).parent
MAX_ROUNDS = 100
SEND, ARRIVE, REPLY, TAKE = 1, 2, 0, 3


class Scenario:
    """Runs the commands of one file."""

    def __init__(self) -> None:
        self._lines: list[str] = []
        self._random = random.Random(0)

    def run(self, commands: Iterable[str]) -> list[str]:
        """The outcome of one block."""
        self._lines = []
        for command in commands:
            name, *arguments = _words(command.split("#")[0])
            positional = [word for word in arguments if "=" not in word]
            options = dict(word.split("=", 1) for word in arguments if "=" in word)
            try:
                self._command(name, positional, options)
            except Violation as violation:
                self._say(f"BROKEN: {violation}")
        return self._lines or ["ok"]

    def _command(self, name: str, positional: list[str], options: dict[str, str]) -> None:
        if name == "brokers":
            self._run = Run(0, Mode("scenario", nodes=int(positional[0]), configs=tuple(options.items())))
            self._world: World = self._run.world
            return
        trace = self._world.trace
        seen = len(trace)
        try:
            do: Callable[..., None] = getattr(self, "do_" + name.replace("-", "_"))
            do(*positional, **options)
            self._world.acknowledge()
        finally:
            told = [line.split(maxsplit=1)[1] for line in trace[seen:]]
            self._lines += told if name not in ("sync", "heal") else [line for line in told if "acknowledges" in line]
        self._world.check()
        self._world.check_contents()

    def _say(self, line: str) -> None:
        self._lines.append(line)

    def _node(self, number: str) -> Node:
        return self._world.nodes[int(number)]

    def _up(self) -> list[Node]:
        return [node for node in self._world.nodes.values() if node.is_up]

    # --- clients

    def do_write(self, number: str, *values: str, acks: str = "-1") -> None:
        for value in values:
            self._world.produce(self._node(number), value.encode(), acks=int(acks))

    def do_delete(self, number: str, before: str) -> None:
        self._world.delete_records(self._node(number), int(before))

    def do_compact(self, number: str) -> None:
        compact(self._node(number))

    # --- disks and streams

    def do_flush(self, *numbers: str) -> None:
        for number in numbers:
            flush(self._node(number))

    def _stream(self, follower: Node) -> Stream | None:
        leader = self._world.nodes.get(follower.partition.leader_id)
        if leader is None or leader is follower or not leader.is_up:
            return None
        key = (follower.node_id, leader.node_id)
        if key not in self._world.streams:
            self._world.connect(follower, leader)
        return self._world.streams.get(key)

    def _step(self, number: str, direction: int) -> None:
        stream = self._stream(self._node(number))
        if stream is None:
            self._say(f"{number} has nobody to copy from")
            return
        arriving = {ARRIVE: stream.to_leader, TAKE: stream.to_follower}.get(direction)
        if arriving is None:
            pump(stream, self._world, direction)
            return
        while arriving:
            self._tell(stream, arriving[0])
            pump(stream, self._world, direction)
        stream.follower.begin_cut()
        stream.follower.end_cut()

    def _tell(self, stream: Stream, body: ReplicaBody) -> None:
        text = _text(body)
        if text:
            source, target = stream.follower.node_id, stream.leader.node_id
            if not isinstance(body, ReplicaFollow | ReplicaReport):
                source, target = target, source
            self._world.note(f"{source} -> {target}: {text}")

    def do_send(self, number: str) -> None:
        self._step(number, SEND)

    def do_arrive(self, number: str) -> None:
        self._step(number, ARRIVE)

    def do_reply(self, number: str) -> None:
        self._step(number, REPLY)

    def do_take(self, number: str) -> None:
        self._step(number, TAKE)

    def do_break(self, number: str) -> None:
        node = self._node(number)
        del self._world.streams[node.node_id, node.partition.leader_id]

    def do_copy(self, *numbers: str) -> None:
        for _ in range(MAX_ROUNDS):
            told = len(self._world.trace)
            for number in numbers:
                for direction in (SEND, ARRIVE, REPLY, TAKE):
                    self._step(number, direction)
            if len(self._world.trace) == told:
                return
        raise Violation("they talk without end")

    def do_sync(self) -> None:
        for _ in range(MAX_ROUNDS):
            told = len(self._world.trace)
            for node in self._up():
                while node.apply_next():
                    pass
                flush(node)
            for node in self._up():
                if node.partition.leader_id not in (-1, node.node_id):
                    for direction in (SEND, ARRIVE, REPLY, TAKE):
                        self._step(str(node.node_id), direction)
            if len(self._world.trace) == told:
                return
        raise Violation("they talk without end")

    # --- controller

    def do_learn(self, number: str, count: str = "1000") -> None:
        node = self._node(number)
        for _ in range(int(count)):
            if not node.apply_next():
                break
        self._tell_role(node)

    def do_learn_at_once(self, number: str) -> None:
        node = self._node(number)
        node.apply_next(1000)
        self._tell_role(node)

    def _tell_role(self, node: Node) -> None:
        partition = node.partition
        role = "leads" if partition.is_leader else f"follows {partition.leader_id}"
        self._world.note(f"{node.node_id} {role} in epoch {partition.leader_epoch}")

    def do_alive(self, *numbers: str) -> None:
        for number in numbers:
            self._world.heartbeat(self._node(number))
        self._world.poll_controller()

    def do_wait(self, time_ms: str, alive: str | None = None) -> None:
        for _ in range(0, int(time_ms), 1_000):
            self._world.now_ms += 1_000
            for node in self._up():
                if alive is None or str(node.node_id) in re.findall(r"\d+", alive):
                    self._world.heartbeat(node)
            self._world.poll_controller()

    def do_propose(self, number: str, fate: str = "answered") -> None:
        node, told = self._node(number), len(self._world.trace)
        self._world.propose(node, Fate[fate.upper().replace("-", "_")])
        if len(self._world.trace) == told:
            self._world.note(f"{number} asks for nothing")
        self._world.take_answer(node)

    def do_late(self) -> None:
        self._world.late_request_arrives()

    def do_fail_over(self) -> None:
        self._world.fail_over()

    def do_elect(self, how: str) -> None:
        if how == "preferred":
            self._world.elect_preferred()
        else:
            self._world.elect_uncleanly()

    def do_policy(self, policy: str) -> None:
        self._world.set_config("flush.policy", policy)

    def do_minimum(self, replicas: str) -> None:
        self._world.set_config("min.insync.replicas", replicas)

    def do_isr(self) -> None:
        state = self._world.state
        places = [f"ISR {_list(state.in_sync_replicas)}"]
        if state.eligible_leader_replicas:
            places.append(f"ELR {_list(state.eligible_leader_replicas)}")
        if state.last_known_elr:
            places.append(f"last known ELR {_list(state.last_known_elr)}")
        leader = "nobody leads" if state.leader_id < 0 else f"{state.leader_id} leads"
        places += ["recovering"] * state.is_recovering + ["not flushed"] * (not state.is_flushed)
        self._say(f"{leader} in epoch {state.leader_epoch}, {', '.join(places)}")

    # --- life

    def _end(self, number: str, end: Callable[[Node], None]) -> None:
        node = self._node(number)
        self._world.drop_streams(node)
        end(node)

    def do_kill(self, number: str) -> None:
        self._end(number, lambda node: node.crash(self._random, loses_unsynced=False))

    def do_power(self, number: str) -> None:
        self._end(number, _lose_power)

    def do_stop(self, number: str) -> None:
        self._end(number, Node.stop_in_order)

    def do_lose_disk(self, number: str) -> None:
        self._end(number, lambda node: node.lose_disk(self._random))

    def do_damage(self, number: str) -> None:
        self._node(number).find_damage()

    def do_start(self, *numbers: str) -> None:
        for number in numbers:
            self._world.start(self._node(number))

    def do_heal(self) -> None:
        self._run.heal()
        self._say("all replicas are equal")

    # --- what there is

    def do_logs(self) -> None:
        for number, node in self._world.nodes.items():
            if not node.is_up:
                self._say(f"{number}: down")
                continue
            log = node.log
            marks = {log.flushed_end_offset: "!"}
            marks[node.partition.high_watermark] = "|" + marks.get(node.partition.high_watermark, "")
            words = [f"from {log.log_start_offset}:"] if log.log_start_offset else []
            for offset, (epoch, payload) in node.records().items():
                words += [*filter(None, [marks.get(offset)]), f"{readable(payload)}/{epoch}"]
            self._say(f"{number}: {' '.join([*words, *filter(None, [marks.get(log.log_end_offset)])])}")


def _lose_power(node: Node) -> None:
    """The worst case: nothing stays that was not synced."""
    node.crash(_Pessimist(), loses_unsynced=True)


class _Pessimist(random.Random):
    """Draws the lowest numbers."""

    def random(self) -> float:
        return 0.0

    def getrandbits(self, k: int, /) -> int:
        return 0


def _words(line: str) -> list[str]:
    return re.findall(r"\S*\([^)]*\)|\S+", line)


def _list(replicas: Iterable[int]) -> str:
    return " ".join(map(str, replicas))


def _text(body: ReplicaBody) -> str:
    match body:
        case ReplicaFollow():
            last = "an empty log" if body.last_epoch < 0 else f"a last record of epoch {body.last_epoch}"
            return f"follow from {body.log_end_offset} in epoch {body.leader_epoch}, after {last}"
        case ReplicaReport():
            start = f", starts at {body.log_start_offset}" if body.log_start_offset else ""
            return f"has through {body.log_end_offset}, on disk through {body.flushed_end_offset}{start}"
        case ReplicaRecords():
            return f"records; high watermark {body.high_watermark}"
        case ReplicaProgress():
            start = f", log start {body.log_start_offset}" if body.log_start_offset else ""
            return f"high watermark {body.high_watermark}{start}"
        case ReplicaDivergence():
            return f"epoch {body.epoch} ends at {body.end_offset} here"
        case ReplicaRefusal():
            return f"refused: {body.error_message}"
        case _:
            return ""


# --- files


def replay(text: str) -> str:
    """The file with the outcomes as they are."""
    scenario, out, commands = Scenario(), list[str](), list[str]()
    in_outcome = False
    for line in text.splitlines():
        if in_outcome:
            in_outcome = bool(line.strip())
            if in_outcome:
                continue
        if line.strip() == "----":
            out += [line, *scenario.run(commands)]
            commands, in_outcome = [], True
            continue
        if line.strip() and not line.startswith("#"):
            commands.append(line)
        out.append(line)
    return "\n".join(out).rstrip() + "\n"


def files() -> list[Path]:
    return sorted(FOLDER.glob("*.txt"))


def main() -> None:
    for path in files():
        text = path.read_text()
        outcome = replay(text)
        if outcome != text:
            print("rewritten" if "--rewrite" in sys.argv else "differs:", path.name)
            if "--rewrite" in sys.argv:
                path.write_text(outcome)


if __name__ == "__main__":
    main()
