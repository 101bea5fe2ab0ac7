"""`kraft` decides and does no I/O; one package of it knows the log store."""

import ast
from pathlib import Path

import kraftlog.kraft

ROOT = Path(next(iter(kraftlog.kraft.__path__)))
WORLD = {"asyncio", "time", "random", "socket", "threading", "os", "secrets", "uuid", "datetime", "grpc", "concurrent"}
ADAPTER = "log_adapter"
ALLOWED = {ADAPTER: {"os"}}  # os.path.join


def imports(path: Path) -> set[str]:
    names = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module is not None:
            names.add(node.module)
    return names


def test_nothing_of_the_world_is_imported() -> None:
    """No clock, thread, socket, random source or event loop of its own: all of it is passed in."""
    for path in sorted(ROOT.rglob("*.py")):
        used = {name.split(".")[0] for name in imports(path)} & WORLD
        assert used <= ALLOWED.get(path.parent.name, set()), f"{path} imports {used}"


def test_only_the_adapter_knows_the_log_store() -> None:
    """The rest is tested without files."""
    knowing = {path.parent.name for path in ROOT.rglob("*.py") if any("logstore" in name for name in imports(path))}
    assert knowing == {ADAPTER}
