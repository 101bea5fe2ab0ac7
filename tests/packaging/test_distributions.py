"""What is in the wheel and in the sdist."""

import tarfile
import zipfile
from pathlib import Path

from packaging.metadata import Metadata

from kraftlog.proto import records
from tests.packaging.conftest import ROOT, build, copy_checkout

AREAS = ["kraft", "logstore", "replication", "server", "sdk", "spark_connector", "proto"]
MOVED = {
    "server/testing": "kraftlog/testing",
    "sdk/_root": "kraftlog",
    "spark_connector/_discovery": "pyspark_kraftlog",
}
SHIPPED = {".py", ".pyi", ".proto", ".c", ".h"}


def files_of(wheel: Path) -> set[str]:
    with zipfile.ZipFile(wheel) as archive:
        return {name for name in archive.namelist() if not name.endswith("/")}


def expected_name(file: Path) -> str:
    """Where a file of the checkout lies in site-packages."""
    name = file.relative_to(ROOT).as_posix()
    for folder, target in MOVED.items():
        if name.startswith(folder + "/"):
            return target + name.removeprefix(folder)
    return "kraftlog/" + name


def test_only_our_names_land_in_site_packages(wheel: Path) -> None:
    """A top-level `proto` or `server` would overwrite other people's."""
    tops = {name.split("/")[0] for name in files_of(wheel)}
    assert {top for top in tops if not top.endswith(".dist-info")} == {"kraftlog", "pyspark_kraftlog"}


def test_every_source_file_is_in_the_wheel_under_its_import_name(wheel: Path) -> None:
    sources = [
        file
        for area in AREAS
        for file in (ROOT / area).rglob("*")
        if file.suffix in SHIPPED and "__pycache__" not in file.parts
    ]
    missing = {expected_name(file) for file in sources} - files_of(wheel)
    assert not missing


def test_type_checkers_find_our_types(wheel: Path) -> None:
    """PEP 561: the marker of the top-level package holds for all below."""
    assert "kraftlog/py.typed" in files_of(wheel)


def test_tests_and_tools_are_not_installed(wheel: Path) -> None:
    assert not [
        name
        for name in files_of(wheel)
        if "test_" in name or "conftest" in name or name.startswith("kraftlog/sdk/_root")
    ]


def test_the_compiled_codec_is_in_the_wheel_where_there_is_a_compiler(wheel: Path) -> None:
    compiled = [name for name in files_of(wheel) if name.startswith("kraftlog/proto/records/_codec.") and ".so" in name]
    assert bool(compiled) == (records.codec == "c" or compiled != [])


def test_the_wheel_without_a_compiler_has_all_but_the_compiled_codec(wheel: Path, wheel_without_compiler: Path) -> None:
    def names(path: Path) -> set[str]:
        return {name for name in files_of(path) if ".so" not in name and ".dist-info" not in name}

    assert names(wheel) == names(wheel_without_compiler)
    assert not [name for name in files_of(wheel_without_compiler) if ".so" in name]


def test_the_wheel_of_the_checkout_equals_the_wheel_of_the_sdist(wheel: Path, tmp_path: Path) -> None:
    """Nothing that the build needs is missing from the sdist."""
    direct = build("build_wheel", copy_checkout(tmp_path / "checkout"), tmp_path / "dist")
    assert files_of(direct) == files_of(wheel)


def test_the_sdist_holds_what_a_reader_needs(sdist: Path) -> None:
    with tarfile.open(sdist) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    assert {
        "LICENSE",
        "README.md",
        "CHANGELOG.md",
        "ARCHITECTURE.md",
        "pyproject.toml",
        "setup.py",
        "proto/broker.proto",
    } <= names
    assert not [name for name in names if name.startswith((".venv", ".dev", "build/"))]


def test_metadata(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        name = next(name for name in archive.namelist() if name.endswith(".dist-info/METADATA"))
        parsed = Metadata.from_email(archive.read(name), validate=False)
    assert parsed.name == "kraftlog"
    assert parsed.license_expression == "Apache-2.0"
    assert str(parsed.requires_python) == ">=3.11"
    assert {"arrow", "spark", "http", "test", "dev", "all"} <= set(parsed.provides_extra or [])
    core = {requirement.name for requirement in parsed.requires_dist or [] if requirement.marker is None}
    assert core == {"grpcio", "protobuf", "lz4", "zstandard", "crc32c", "click", "rich"}
