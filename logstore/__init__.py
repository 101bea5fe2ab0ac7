"""One partition's log on disk: segments, indexes, recovery, leader epochs, producer state. Synchronous; one writer a log."""

if __name__ != "kraftlog.logstore":
    raise ImportError("import kraftlog.logstore: logstore/ is a folder of the checkout, not a module")
