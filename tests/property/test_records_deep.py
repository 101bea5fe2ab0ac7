"""The twins and the hand-framed messages once more, with the examples of `make test-deep` (KRAFTLOG_EXAMPLES)."""

import pytest

from tests.property.test_hotpath_properties import (
    test_both_ways_equal_the_generated_classes,
    test_hostile_bytes_are_refused_or_read_as_protobuf_does,
)
from tests.property.test_records_twins import (
    test_builders_make_the_same_bytes_and_readers_get_them_back,
    test_checksums_and_hashes_are_equal,
    test_hostile_batches_have_the_same_fate,
    test_hostile_compression_gives_bytes_or_invalid_record,
    test_hostile_sections_have_the_same_fate,
    test_hostile_snappy_has_the_same_fate,
    test_rows_of_arrow_columns_become_the_batches_of_append,
)

pytestmark = [pytest.mark.deep, pytest.mark.slow, pytest.mark.timeout(5400)]

__all__ = [
    "test_both_ways_equal_the_generated_classes",
    "test_builders_make_the_same_bytes_and_readers_get_them_back",
    "test_checksums_and_hashes_are_equal",
    "test_hostile_batches_have_the_same_fate",
    "test_hostile_bytes_are_refused_or_read_as_protobuf_does",
    "test_hostile_compression_gives_bytes_or_invalid_record",
    "test_hostile_sections_have_the_same_fate",
    "test_hostile_snappy_has_the_same_fate",
    "test_rows_of_arrow_columns_become_the_batches_of_append",
]
