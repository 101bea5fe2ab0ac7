"""`node_shim.c` for the nodes of a cluster: a wall clock that jumps, a disk that is slow or fails, while they run."""

import shutil
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

from kraftlog.testing import NodeProcess


@dataclass(frozen=True, slots=True)
class Shim:
    """Of one node."""

    library: Path
    folder: Path
    data: Path

    @property
    def environment(self) -> dict[str, str]:
        """Of the node's process."""
        return {"LD_PRELOAD": str(self.library), "SHIM_FOLDER": str(self.folder), "SHIM_DATA": str(self.data)}

    def set_wall_clock(self, ahead_s: int) -> None:
        self._set("wall_clock_s", str(ahead_s))

    def slow_syncs(self, ms: int) -> None:
        """0: as fast as the disk is."""
        self._set("sync_ms", str(ms))

    def fail(self, call: str) -> None:
        """Empty: none."""
        self._set("fail", call)

    def _set(self, name: str, text: str) -> None:
        """At once: whoever reads meanwhile finds the one or the other."""
        beside = self.folder / f"{name}.new"
        beside.write_text(text)
        beside.replace(self.folder / name)


def compile_shim(folder: Path) -> Path:
    """Skips the test, with the reason, where that cannot be had."""
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None or not sys.platform.startswith("linux"):
        pytest.skip("needs Linux and a C compiler")
    library = folder / "node_shim.so"
    source = Path(__file__).with_name("node_shim.c")
    built = subprocess.run(
        [compiler, "-shared", "-fPIC", "-O1", "-o", library, source, "-ldl"], capture_output=True, text=True
    )
    if built.returncode:
        pytest.skip(f"the shim does not compile here: {built.stderr[:200]}")
    return library


def preload(library: Path, nodes: Sequence[NodeProcess]) -> dict[int, Shim]:
    """Into nodes that have not started yet."""
    shims = {}
    for node in nodes:
        folder = node.directory / "shim"
        folder.mkdir()
        shim = shims[node.node_id] = Shim(library, folder, node.log_dir)
        node.environment.update(shim.environment)
    return shims
