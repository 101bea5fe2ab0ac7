"""The verbs of kraftctl that touch a node's files or processes: `cluster`, `server`, `storage`, `log`.

Loaded by name from the table in `kraftlog.sdk.cli.main`, because the SDK may not import the server.
"""
