"""kraftctl: the command line. Remote verbs live here, local ones (which read a node's files) in `kraftlog.server.cli`.

`main` holds a table that names every command's module by string, so that `--help`, `--version` and offline verbs
start without grpc. Read `main`, then `report` (how errors end) and one command, say `topic`.
"""
