"""Distributions built from a copy of the checkout, and fresh environments that they are installed into.

Nothing is downloaded: the environments get their dependencies as links to what this interpreter has installed.
"""

import os
import shutil
import subprocess
import sys
import tarfile
import venv
from collections.abc import Iterable
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

import pytest
from packaging.requirements import Requirement

ROOT = Path(__file__).parents[2]
NOT_SOURCE = shutil.ignore_patterns(
    ".git",
    ".venv*",
    ".dev",
    ".demo",
    "build",
    "dist",
    "*.egg-info",
    "__pycache__",
    "*.so",
    ".*_cache",
    ".hypothesis",
    "tests",
)
BUILD = "import sys; from setuptools import build_meta; print(getattr(build_meta, sys.argv[1])(sys.argv[2]))"


@dataclass(frozen=True)
class Environment:
    """A virtual environment."""

    path: Path

    @property
    def site(self) -> Path:
        return next(self.path.glob("lib/python*/site-packages"))

    def run(self, *command: str, **variables: str) -> "subprocess.CompletedProcess[str]":
        """Run a program of the environment, without this checkout in sight."""
        clean = {
            key: value for key, value in os.environ.items() if not key.startswith(("PYTHON", "KRAFTLOG", "VIRTUAL"))
        }
        clean["KRAFTLOG_HOME"] = str(self.path / "home")
        return subprocess.run(
            [str(self.path / "bin" / command[0]), *command[1:]],
            cwd=self.path,
            env={**clean, **variables},
            capture_output=True,
            text=True,
            check=False,
            timeout=120,
        )

    def python(self, code: str, **variables: str) -> "subprocess.CompletedProcess[str]":
        return self.run("python", "-c", code, **variables)


def copy_checkout(target: Path) -> Path:
    return Path(shutil.copytree(ROOT, target, ignore=NOT_SOURCE))


def build(kind: str, source: Path, output: Path, **variables: str) -> Path:
    """Call the build backend as pip does: `build_sdist` or `build_wheel`."""
    output.mkdir(parents=True, exist_ok=True)
    ended = subprocess.run(
        [sys.executable, "-c", BUILD, kind, str(output)],
        cwd=source,
        env={**os.environ, **variables},
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert ended.returncode == 0, ended.stderr
    return output / ended.stdout.splitlines()[-1]


def unpack(sdist: Path, target: Path) -> Path:
    with tarfile.open(sdist) as archive:
        archive.extractall(target, filter="data")
    return next(target.iterdir())


@pytest.fixture(scope="session")
def sdist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    base = tmp_path_factory.mktemp("sdist")
    return build("build_sdist", copy_checkout(base / "checkout"), base / "dist")


@pytest.fixture(scope="session")
def wheel(sdist: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel that pip makes of the sdist."""
    base = tmp_path_factory.mktemp("wheel")
    return build("build_wheel", unpack(sdist, base / "source"), base / "dist")


@pytest.fixture(scope="session")
def wheel_without_compiler(sdist: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    base = tmp_path_factory.mktemp("no-compiler")
    return build("build_wheel", unpack(sdist, base / "source"), base / "dist", CC="/bin/false")


@pytest.fixture(scope="session")
def core_environment(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Environment:
    """A plain install without extras."""
    return install(wheel, tmp_path_factory.mktemp("core") / "venv")


def install(wheel: Path, path: Path) -> Environment:
    """A fresh environment with the wheel and exactly the dependencies that it asks for."""
    venv.create(path, with_pip=False, symlinks=True)
    environment = Environment(path)
    python = str(path / "bin" / "python")
    pip = [sys.executable, "-m", "pip", "--python", python, "--disable-pip-version-check"]
    subprocess.run([*pip, "install", "-q", "--no-index", "--no-deps", str(wheel)], check=True)
    graft(environment, requirements_of("kraftlog"))
    return environment


def graft(environment: Environment, names: Iterable[str]) -> None:
    """Link installed distributions (and what they require) into the environment."""
    for name in closure(names):
        distribution = metadata.distribution(name)
        tops = {file.parts[0] for file in distribution.files or [] if file.parts[0] not in ("..", "__pycache__")}
        for top in tops:
            link = environment.site / top
            if not link.exists():
                link.symlink_to(Path(str(distribution.locate_file(top))))


def closure(names: Iterable[str]) -> set[str]:
    found: set[str] = set()
    waiting = list(names)
    while waiting:
        name = waiting.pop()
        if name not in found:
            found.add(name)
            waiting += requirements_of(name)
    return found


def requirements_of(name: str) -> list[str]:
    """What a distribution requires here, without its extras."""
    parsed = [Requirement(text) for text in metadata.requires(name) or []]
    return [each.name for each in parsed if each.marker is None or each.marker.evaluate({"extra": ""})]
