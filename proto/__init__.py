"""What travels: protocol messages, record batches, error codes and the seams. Imports nothing of kraftlog above itself; never imports grpc."""

if __name__ != "kraftlog.proto":
    raise ImportError("import kraftlog.proto: proto/ is a folder of the checkout, not a module")
