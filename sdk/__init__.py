"""The client: producer, consumer, admin and the kraftctl command line. Knows only `kraftlog.proto`."""

if __name__ != "kraftlog.sdk":
    raise ImportError("import kraftlog.sdk: sdk/ is a folder of the checkout, not a module")
