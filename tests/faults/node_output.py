"""What a node printed that it should not have."""

import re

_CANCELLED_BEFORE_IT_BEGAN = re.compile(
    r"Traceback \(most recent call last\):\n  File [^\n]* in grpc\._cython\.cygrpc\._schedule_rpc_coro\n"
    r"asyncio\.exceptions\.CancelledError\n"
)
"""gRPC prints this itself, past every log, of a call that was cancelled before its handler began."""


def traceback_in(text: str) -> str:
    """The first one, with what came before it; empty: there is none."""
    text = _CANCELLED_BEFORE_IT_BEGAN.sub("", text)
    at = text.find("Traceback")
    return "" if at < 0 else text[max(0, at - 500) :][:3000]
