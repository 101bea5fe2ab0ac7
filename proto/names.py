"""Which names users may give. No name reaches the file system, a log line or a metric label without passing here.

Topic names follow Kafka's rule (`org.apache.kafka.common.internals.Topic`): 1 to 249 characters of `[a-zA-Z0-9._-]`,
but not `.` or `..`. Names that differ only in `.` and `_` collide in metric names, as in Kafka.
"""

import re

from kraftlog.proto.errors import InvalidGroupIdError, InvalidTopicError

MAX_TOPIC_NAME_LENGTH = 249  # a partition's folder is `<topic>-<partition>`, and file names end at 255 bytes
MAX_ID_LENGTH = 249  # group, client, instance and transactional ids
CLUSTER_METADATA_TOPIC = "__cluster_metadata"
CONSUMER_OFFSETS_TOPIC = "__consumer_offsets"
TRANSACTION_STATE_TOPIC = "__transaction_state"
INTERNAL_TOPICS = frozenset({CLUSTER_METADATA_TOPIC, CONSUMER_OFFSETS_TOPIC, TRANSACTION_STATE_TOPIC})

_LEGAL_TOPIC = re.compile(r"[a-zA-Z0-9._-]+\Z")


def validate_topic_name(name: str) -> None:
    """Raise `InvalidTopicError` unless `name` is a legal topic name."""
    if not name:
        raise InvalidTopicError("topic name is empty: give 1 to 249 characters of a-z A-Z 0-9 . _ -")
    if name in (".", ".."):
        raise InvalidTopicError(f"topic name {name!r} is reserved: choose another name")
    if len(name) > MAX_TOPIC_NAME_LENGTH:
        raise InvalidTopicError(
            f"topic name of {len(name)} characters exceeds {MAX_TOPIC_NAME_LENGTH}: {display(name, 40)}"
        )
    if not _LEGAL_TOPIC.match(name):
        raise InvalidTopicError(f"topic name {display(name)} has a character other than a-z A-Z 0-9 . _ -")


def is_internal_topic(name: str) -> bool:
    """Whether the cluster itself keeps state in this topic."""
    return name in INTERNAL_TOPICS


def validate_group_id(group_id: str) -> None:
    """Raise `InvalidGroupIdError` unless `group_id` is 1 to 249 printable characters."""
    if not group_id:
        raise InvalidGroupIdError("group id is empty: set group_id")
    if len(group_id) > MAX_ID_LENGTH:
        raise InvalidGroupIdError(
            f"group id of {len(group_id)} characters exceeds {MAX_ID_LENGTH}: {display(group_id, 40)}"
        )
    if not group_id.isprintable():
        raise InvalidGroupIdError(f"group id {display(group_id)} has a character that is not printable")


def display(name: str, limit: int = 80) -> str:
    """A quoted form of a foreign name that is safe in a log line or on a terminal."""
    quoted = ascii(name)
    return quoted if len(quoted) <= limit else quoted[:limit] + "...'"
