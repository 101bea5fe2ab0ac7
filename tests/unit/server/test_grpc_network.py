"""What a node says of connections that gRPC has lost."""

import asyncio
import logging

import pytest
from grpc._cython import cygrpc

from kraftlog.proto.seams import Handlers
from kraftlog.server.grpc import GrpcNetwork


async def test_a_client_that_is_gone_is_no_error_of_the_server(caplog: pytest.LogCaptureFixture) -> None:
    """grpc.aio reports it with a traceback if the answer fails before it has heard of the broken connection, or the handler
    has not begun yet; every other error of a handler stays one."""
    server = await GrpcNetwork().serve("127.0.0.1:0", Handlers(unary={}, streams={}))
    errors = (cygrpc.ExecuteBatchError("Failed execute_batch"), asyncio.CancelledError(), RuntimeError("a bug"))
    try:
        of_grpc = logging.getLogger("grpc._cython.cygrpc")
        for error in errors:
            of_grpc.error("%s raised by servicer method", type(error).__name__, exc_info=error)
    finally:
        await server.stop(0)
    assert [record.message for record in caplog.records] == ["RuntimeError raised by servicer method"]
