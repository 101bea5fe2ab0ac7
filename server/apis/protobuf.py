"""Handlers over generated message classes."""

from collections.abc import Awaitable, Callable
from typing import TypeVar

from google.protobuf.message import DecodeError, Message

from kraftlog.proto.errors import InvalidRequestError
from kraftlog.proto.seams import CallContext, Payload, UnaryHandler

Request = TypeVar("Request", bound=Message)


def parse(message_class: type[Request], data: bytes) -> Request:
    """Raises `InvalidRequestError` for bytes that are no such message."""
    message = message_class()
    try:
        message.ParseFromString(data)
    except DecodeError as error:
        raise InvalidRequestError(f"the bytes are no {message_class.DESCRIPTOR.name}: {error}") from None
    return message


def protobuf_handler(
    request_class: type[Request], method: Callable[[Request, CallContext], Awaitable[Message]]
) -> UnaryHandler:
    """The method as a server takes it."""

    async def call(data: bytes, context: CallContext) -> Payload:
        answer = await method(parse(request_class, data), context)
        return answer.SerializeToString(deterministic=True)  # maps in order: one seed is one run

    return call
