"""A rate that is not to be exceeded."""

import math

from kraftlog.replication.throttle import Throttle


def test_what_was_moved_is_waited_for_and_a_pause_saves_nothing_up() -> None:
    throttle = Throttle(1000)
    assert throttle.delay_ms(500, 0) == 500
    assert throttle.delay_ms(500, 500) == 500
    assert throttle.delay_ms(500, 2000) == 500, "the pause before saves nothing up"
    assert Throttle(math.inf).delay_ms(1 << 40, 0) == 0


def test_what_was_moved_together_is_waited_for_together() -> None:
    throttle = Throttle(1000)
    throttle.spend(500, 0)
    throttle.spend(500, 100)
    assert throttle.free_at_ms(100) == 1000
    assert throttle.free_at_ms(5000) == 5000


def test_another_rate_holds_for_what_is_still_to_be_paid() -> None:
    throttle = Throttle(1000)
    throttle.spend(1000, 0)
    throttle.set_rate(250, 500)
    assert throttle.free_at_ms(500) == 2500
    throttle.set_rate(math.inf, 1000)
    assert not throttle.is_limited
    assert throttle.free_at_ms(1000) == 1000
    throttle.set_rate(1000, 2000)
    assert throttle.free_at_ms(2000) == 2000, "without a rate nothing is owed"
