"""Random members, failing coordinators, a log that stalls: what a consumer group promises holds in every run."""

import pytest
from hypothesis import given, note
from hypothesis import strategies as st

from kraftlog.testing.loop import run_virtual
from tests.property.group_world import Fault, World

ACTIONS = (
    *("crash", "start", "pause", "leave", "twin"),  # clients
    *("move", "zombie", "hold", "release", "refuse", "accept"),  # coordinators and their log
    "reset",  # an operator
)
FAULTS = st.lists(
    st.builds(
        Fault,
        delay_ms=st.sampled_from((0, 50, 500, 2_000, 7_000)),
        action=st.sampled_from(ACTIONS),
        index=st.integers(0, 7),
    ),
    max_size=25,
)


def simulate(seed: int, clients: int, static: int, delay_ms: int, faults: list[Fault]) -> World:
    worlds: list[World] = []

    async def main() -> None:
        worlds.append(World(seed, clients=clients, static=static, delay_ms=delay_ms))
        await worlds[0].run(faults)

    run_virtual(main(), max_seconds=3_600)
    return worlds[0]


@pytest.mark.slow
@given(
    seed=st.integers(0, 2**32 - 1),
    clients=st.integers(1, 5),
    static=st.integers(0, 3),
    delay_ms=st.sampled_from((0, 5, 300)),
    faults=FAULTS,
)
def test_groups_keep_their_promises(seed: int, clients: int, static: int, delay_ms: int, faults: list[Fault]) -> None:
    """One owner a generation, offsets that do not go back, one answer a request, replay equality, progress."""
    note(f"seed={seed}")
    simulate(seed, clients, static, delay_ms, faults)
