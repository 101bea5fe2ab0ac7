"""Streams of frames: messages of several kinds, one after the other, of which a few may travel in one gRPC message.

A service with such a stream has a message `<X>Frames { repeated <X>Frame frames = 1; }`, and `<X>Frame` is a oneof of the
kinds. Both are framed by hand (see `framing`), so that record batches are never copied.
"""

from collections.abc import Iterator, Sequence
from typing import Any, Generic, TypeVar

from kraftlog.proto import framing
from kraftlog.proto.errors import InvalidRequestError
from kraftlog.proto.framing import Buffer, Kind, Schema
from kraftlog.proto.varint import encode_unsigned

Body = TypeVar("Body")

_FRAMES_TAG = encode_unsigned(1 << 3 | 2)


class FrameCodec(Generic[Body]):
    """Frames of one service. Safe from any thread."""

    def __init__(
        self, frame_class: type[Any], schemas: Sequence[Schema], *, max_message_bytes: int, max_frames: int
    ) -> None:
        """`frame_class`: a dataclass with a field for each kind, None where it is another; `schemas` in the same order."""
        self._frame_class = frame_class
        self._what = frame_class.__name__
        self._names = tuple(frame_class.__dataclass_fields__)
        self._schema = Schema(
            frame_class,
            *(
                (number, name, Kind.MESSAGE, schema)
                for number, (name, schema) in enumerate(zip(self._names, schemas, strict=True), start=1)
            ),
        )
        self._encoders = {
            schema.message: (encode_unsigned(number << 3 | 2), schema) for number, schema in enumerate(schemas, start=1)
        }
        self._by_tag = {number << 3 | 2: schema for number, schema in enumerate(schemas, start=1)}
        self._max_message_bytes = max_message_bytes
        self._max_frames = max_frames
        self.field_of: dict[type[Any], str] = {
            schema.message: name for name, schema in zip(self._names, schemas, strict=True)
        }

    def encode(self, body: Body) -> list[Buffer]:
        """One frame as pieces of a message: several of them, one after the other, are such a message too."""
        tag, schema = self._encoders[type(body)]
        pieces = framing.encode(body, schema)
        size = sum(map(len, pieces))
        head = tag + encode_unsigned(size)
        return [_FRAMES_TAG + encode_unsigned(len(head) + size) + head + pieces[0], *pieces[1:]]

    def decode(self, data: bytes) -> Iterator[Body]:
        """What a message holds, one by one; `bytes` fields are views into `data`. Frames of a kind that only a later version
        knows are passed over.

        Raises `InvalidRequestError` for a message that is malformed, or larger or of more frames than allowed, after those
        that stand before the fault.
        """
        if len(data) > self._max_message_bytes:
            raise InvalidRequestError(f"a message of {len(data)} bytes exceeds the limit of {self._max_message_bytes}")
        for view in framing.split_repeated(data, max_count=self._max_frames, what=self._what):
            # Nearly all frames are short and have one message of a known kind, which is decoded without the frame.
            if len(view) >= 2 and view[1] == len(view) - 2 < 0x80 and (schema := self._by_tag.get(view[0])) is not None:
                yield framing.decode(view[2:], schema.message, schema)
                continue
            frame = framing.decode(view, self._frame_class, self._schema)
            bodies = [body for name in self._names if (body := getattr(frame, name)) is not None]
            if len(bodies) > 1:
                raise InvalidRequestError(f"a frame with {len(bodies)} messages; it must have one")
            yield from bodies


def size_of(pieces: Sequence[Buffer]) -> int:
    return sum(map(len, pieces))
