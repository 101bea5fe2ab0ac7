"""Leader epochs: where they start and end (KIP-101, KIP-279)."""

from kraftlog.logstore.epochs import LeaderEpochCache


def test_an_epoch_ends_where_the_next_starts() -> None:
    cache = LeaderEpochCache([(1, 0), (3, 10), (4, 25)])
    assert cache.end_offset_for(4, 30) == (4, 30)
    assert cache.end_offset_for(3, 30) == (3, 25)
    assert cache.end_offset_for(1, 30) == (1, 10)


def test_an_unknown_epoch_gives_the_largest_below_it() -> None:
    """KIP-279: a follower that wrote epoch 2 alone cuts back to the end of epoch 1."""
    cache = LeaderEpochCache([(1, 0), (3, 10)])
    assert cache.end_offset_for(2, 30) == (1, 10)


def test_an_epoch_older_than_all_gives_the_oldests_start() -> None:
    cache = LeaderEpochCache([(5, 7), (6, 9)])
    assert cache.end_offset_for(2, 30) == (2, 7)


def test_an_epoch_newer_than_all_is_undefined() -> None:
    assert LeaderEpochCache([(1, 0)]).end_offset_for(2, 30) == (-1, -1)
    assert LeaderEpochCache().end_offset_for(0, 30) == (-1, -1)
    assert LeaderEpochCache([(1, 0)]).end_offset_for(-1, 30) == (-1, -1)


def test_only_newer_epochs_are_assigned() -> None:
    cache = LeaderEpochCache()
    assert cache.latest_epoch == -1
    assert cache.assign(2, 5)
    assert not cache.assign(2, 6)
    assert not cache.assign(1, 7)
    assert not cache.assign(-1, 7)
    assert cache.entries == ((2, 5),)


def test_an_epoch_that_wrote_nothing_is_replaced() -> None:
    cache = LeaderEpochCache([(1, 0)])
    cache.assign(2, 8)
    cache.assign(3, 8)
    assert cache.entries == ((1, 0), (3, 8))


def test_truncation_forgets_epochs_from_there_on() -> None:
    cache = LeaderEpochCache([(1, 0), (2, 8), (3, 9)])
    cache.truncate_to(9)
    assert cache.entries == ((1, 0), (2, 8))
    cache.truncate_to(8)
    assert cache.entries == ((1, 0),)
    cache.truncate_to(0)
    assert cache.entries == ()


def test_the_start_moves_up_with_the_log() -> None:
    cache = LeaderEpochCache([(1, 0), (2, 8), (3, 9)])
    cache.advance_start(8)
    assert cache.entries == ((2, 8), (3, 9))
    cache.advance_start(100)
    assert cache.entries == ((3, 100),)
    cache.advance_start(50)
    assert cache.entries == ((3, 100),)


def test_the_epoch_of_an_offset() -> None:
    cache = LeaderEpochCache([(1, 5), (2, 8)])
    assert [cache.epoch_for(offset) for offset in (4, 5, 7, 8, 100)] == [-1, 1, 1, 2, 2]


def test_entries_are_replaced_never_changed() -> None:
    """A saver in another thread compares by identity."""
    cache = LeaderEpochCache([(1, 0)])
    before = cache.entries
    cache.assign(1, 3)
    cache.truncate_to(5)
    cache.advance_start(0)
    assert cache.entries is before
    cache.assign(2, 3)
    assert before == ((1, 0),)
