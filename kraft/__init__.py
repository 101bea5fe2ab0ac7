"""The metadata quorum: Raft core, controller state machine, metadata image. Pure: no clock, socket, thread or randomness of its own."""

if __name__ != "kraftlog.kraft":
    raise ImportError("import kraftlog.kraft: kraft/ is a folder of the checkout, not a module")
