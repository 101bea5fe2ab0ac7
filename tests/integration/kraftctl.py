"""kraftctl as a process, with a home of its own."""

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

KRAFTCTL = [sys.executable, "-m", "kraftlog.sdk.cli.main"]


@dataclass(frozen=True)
class Cli:
    """kraftctl with a home of its own."""

    home: Path

    @property
    def environment(self) -> dict[str, str]:
        clean = {key: value for key, value in os.environ.items() if not key.startswith("KRAFTLOG_")}
        return {**clean, "KRAFTLOG_HOME": str(self.home)}

    def run(self, *arguments: str, stdin: bytes = b"") -> "subprocess.CompletedProcess[str]":
        ended = subprocess.run(
            [*KRAFTCTL, *arguments], input=stdin, env=self.environment, capture_output=True, check=False, timeout=90
        )
        return subprocess.CompletedProcess(ended.args, ended.returncode, ended.stdout.decode(), ended.stderr.decode())

    def ok(self, *arguments: str, stdin: bytes = b"") -> str:
        ended = self.run(*arguments, stdin=stdin)
        assert ended.returncode == 0, ended.stderr
        return ended.stdout

    def json(self, *arguments: str, stdin: bytes = b"") -> Any:
        return json.loads(self.ok(*arguments, "--format", "json", stdin=stdin))

    def fails(self, code: int, text: str, *arguments: str, stdin: bytes = b"") -> str:
        """The command ends with `code` and one line that has `text`, and with no traceback."""
        ended = self.run(*arguments, stdin=stdin)
        assert ended.returncode == code, ended.stderr
        lines = ended.stderr.splitlines()
        errors = [line for line in lines if line.startswith("kraftctl: error: ")]
        assert len(errors) == 1, ended.stderr
        assert text in errors[0], errors[0]
        assert "Traceback" not in ended.stderr
        return errors[0]

    def start(self, *arguments: str) -> "subprocess.Popen[bytes]":
        return subprocess.Popen(
            [*KRAFTCTL, *arguments],
            env=self.environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
