"""The node process: listeners, request handlers, coordinators and their assembly."""

if __name__ != "kraftlog.server":
    raise ImportError("import kraftlog.server: server/ is a folder of the checkout, not a module")
