"""A plain install (not editable) into a fresh environment with nothing but the core dependencies."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.packaging.conftest import ROOT, Environment, graft, install

AREAS = ["kraft", "logstore", "replication", "server", "sdk", "spark_connector", "proto"]

IMPORT_ALL = """
import importlib, pkgutil, sys
import kraftlog
optional = {"cryptography", "pyarrow", "pyspark", "pandas", "numpy", "pysyncobj", "hypothesis", "pytest"}
for module in pkgutil.walk_packages(kraftlog.__path__, "kraftlog."):
    try:
        importlib.import_module(module.name)
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] not in optional:
            raise
        print("skipped", module.name, error.name)
    else:
        print("imported", module.name)
"""

DISCOVERY = """
import importlib, pkgutil, sys
names = [module.name for module in pkgutil.iter_modules() if module.name.startswith("pyspark_")]
for name in names:
    importlib.import_module(name)
assert "grpc" not in sys.modules and "pyarrow" not in sys.modules
print(*sorted(names))
"""


def test_every_area_imports(core_environment: Environment) -> None:
    ended = core_environment.python("\n".join(f"import kraftlog.{area}" for area in [*AREAS, "testing"]))
    assert ended.returncode == 0, ended.stderr


def test_every_module_imports_or_names_an_extra(core_environment: Environment) -> None:
    """No core module may need a package that only an extra brings."""
    ended = core_environment.python(IMPORT_ALL)
    assert ended.returncode == 0, ended.stderr
    skipped = [line.split()[1] for line in ended.stdout.splitlines() if line.startswith("skipped")]
    allowed = (
        "kraftlog.spark_connector",
        "kraftlog.proto.records.arrow",
        "kraftlog.sdk.producer.arrow_batches",  # Producer.send_batch loads it
        "kraftlog.testing",
    )
    assert [name for name in skipped if not name.startswith(allowed)] == []


@pytest.mark.parametrize("area", AREAS)
def test_bare_names_are_not_installed(core_environment: Environment, area: str) -> None:
    ended = core_environment.python(f"import {area}")
    assert "ModuleNotFoundError" in ended.stderr


@pytest.mark.parametrize("area", AREAS)
def test_bare_names_refuse_in_a_checkout(area: str) -> None:
    """A second copy of a module under another name would break `except` and pickling."""
    ended = subprocess.run(
        [sys.executable, "-c", f"import {area}"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert f"import kraftlog.{area}" in ended.stderr.splitlines()[-1]


def test_importing_kraftlog_imports_nothing_else(core_environment: Environment) -> None:
    ended = core_environment.python(
        "import sys, kraftlog; print(*sorted(m for m in sys.modules if m.startswith(('kraftlog', 'grpc'))))"
    )
    assert ended.stdout.split() == ["kraftlog"]


def test_the_public_names_are_there(core_environment: Environment) -> None:
    ended = core_environment.python("import kraftlog; [getattr(kraftlog, name) for name in kraftlog.__all__]")
    assert ended.returncode == 0, ended.stderr


def test_kraftctl_runs(core_environment: Environment) -> None:
    assert core_environment.run("kraftctl", "--version").stdout == "kraftctl 0.1.0\n"
    assert core_environment.run("kraftctl", "explain", "3").returncode == 0


def test_doctor_names_the_codec_and_the_missing_extras(core_environment: Environment) -> None:
    ended = core_environment.run("kraftctl", "doctor", "--format", "json")
    assert ended.returncode == 0, ended.stderr
    findings = {finding["name"]: finding for finding in json.loads(ended.stdout)["findings"]}
    assert findings["pyspark"]["detail"] == "not installed"
    assert "kraftlog[arrow]" in findings["pyarrow"]["advice"]
    assert findings["codec"]["detail"].startswith(("c", "python"))


def test_requirements_are_met(core_environment: Environment) -> None:
    python = str(core_environment.path / "bin" / "python")
    ended = subprocess.run(
        [sys.executable, "-m", "pip", "--python", python, "check"], capture_output=True, text=True, check=False
    )
    assert ended.returncode == 0, ended.stdout


def test_without_a_compiler_the_python_codec_serves_and_doctor_says_why(
    wheel_without_compiler: Path, tmp_path: Path
) -> None:
    environment = install(wheel_without_compiler, tmp_path / "venv")
    assert environment.python("import kraftlog; print(kraftlog.codec)").stdout == "python\n"
    findings = json.loads(environment.run("kraftctl", "doctor", "--format", "json").stdout)["findings"]
    codec = next(finding for finding in findings if finding["name"] == "codec")
    assert codec["verdict"] == "note"
    assert codec["detail"].startswith("python, some ten times slower than c: ")
    assert "_codec" in codec["detail"]
    assert "C compiler" in codec["advice"]


def test_spark_discovery_works_beside_others_without_arrow_and_grpc(wheel: Path, tmp_path: Path) -> None:
    """One `pyspark_*` package that fails to import disables discovery for everybody's sources."""
    environment = install(wheel, tmp_path / "venv")
    other = environment.site / "pyspark_other"
    other.mkdir()
    (other / "__init__.py").write_text("")
    graft(environment, ["pyspark"])
    (environment.site / "grpc").unlink()
    ended = environment.python(DISCOVERY)
    assert ended.stdout == "pyspark_kraftlog pyspark_other\n", ended.stderr
