"""Raising a remembered error."""

from kraftlog.proto.errors import KraftlogError


def again(error: KraftlogError) -> KraftlogError:
    """A copy to raise: raising one exception many times would make its traceback grow each time."""
    copy = type(error)(error.message)
    copy.__cause__ = error.__cause__
    return copy
