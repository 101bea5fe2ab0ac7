"""One history of the controller, cut at every place: whatever is committed when the active controller dies, and however much
more the next one has in its log, what it finds is whole, and it goes on. The model of `test_controller_model` judges."""

from collections.abc import Callable

import pytest

from tests.property.test_controller_model import NODES, ControllerMachine


def start_without_commits(machine: ControllerMachine, node_id: int) -> None:
    machine.register(node_id, how="clean", disk="same")
    machine.heartbeat(node_id, behind=False)


HISTORY: list[Callable[[ControllerMachine], None]] = [
    lambda m: m.create_topic("b", 3, 3, {"min.insync.replicas": "2"}, with_id=True, validate_only=False),
    lambda m: m.alter_config("a", "min.insync.replicas", "2", with_id=True),
    lambda m: start_without_commits(m, 4),
    lambda m: m.create_partitions("a", 4, with_id=True, validate_only=False),
    lambda m: m.allocate_producer_ids(1, 5, with_id=True, is_stale=False),
    lambda m: m.let_sessions_expire({2}),
    lambda m: m.delete_topic("b", with_id=True),
    lambda m: m.update_feature(2, 0, with_id=True),
    lambda m: m.create_topic("b", 2, 2, {}, with_id=True, validate_only=False),
    lambda m: m.unregister(2, with_id=True),
    lambda m: m.register(2, how="unclean", disk="lost"),
    lambda m: m.poll(),
]


class Played(ControllerMachine):
    """The history, without a commit since its topics `a` and `c.d` were made."""

    def __init__(self) -> None:
        super().__init__()
        self.begin([("a", 3, 3, {}), ("c.d", 1, 2, {"flush.policy": "interval"})])
        for step in HISTORY:
            step(self)

    def check(self) -> None:
        self.everybody_knows_the_same()
        self.images_are_what_the_model_says()
        self.leaders_have_what_was_acknowledged()
        self.epochs_only_grow()
        self.unclean_elections_are_told()


def count_batches() -> int:
    machine = Played()
    try:
        return machine.cluster.uncommitted
    finally:
        machine.teardown()


@pytest.mark.slow
@pytest.mark.parametrize("how", ["follower", "log", "snapshot"])
def test_the_controller_dies_at_any_batch(how: str) -> None:
    """`committed` batches are known to be committed, `surviving` more are in the next leader's log; then every operation
    that was asked for is asked for again, and all comes to rest."""
    batches = count_batches()
    assert batches >= len(HISTORY)
    for committed in range(batches + 1):
        for surviving in range(batches - committed + 1):
            machine = Played()
            try:
                if committed:
                    machine.commit(committed)
                    machine.check()
                machine.fail_over(surviving, how)
                machine.check()
                for asked in list(machine.asked):
                    machine.submit(asked.again, effect=asked.effect, request=asked.request)
                    machine.check()
                for node_id in NODES:
                    machine.heartbeat(node_id, behind=False)
                machine.settle()
                machine.check()
            finally:
                machine.teardown()
