"""The gRPC side of the network seam: the only place of the server that imports grpc."""

from kraftlog.server.grpc.network import GrpcNetwork

__all__ = ["GrpcNetwork"]
