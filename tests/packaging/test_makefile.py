"""The Makefile's targets: all phony (`proto` and `tests` are also folders), all explained."""

import os
import re
import subprocess

from tests.packaging.conftest import ROOT

MAKEFILE = (ROOT / "Makefile").read_text(encoding="utf-8")
PROMISED = {"demo", "test", "test-deep", "soak", "sim", "check", "proto", "bench", "dev", "clean"}


def declared() -> set[str]:
    return set(re.findall(r"^([a-z-]+):", MAKEFILE, re.MULTILINE))


def test_every_target_is_phony() -> None:
    phony = re.search(r"^\.PHONY:(.*)$", MAKEFILE, re.MULTILINE)
    assert phony is not None
    assert set(phony.group(1).split()) == declared()


def test_the_promised_targets_are_there_and_explained() -> None:
    environment = {key: value for key, value in os.environ.items() if not key.startswith("MAKE")}  # this may be make's
    command = ["make", "help"]
    listed = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=True).stdout
    explained = {line.split()[1] for line in listed.splitlines() if len(line.split()) > 2}
    assert declared() >= PROMISED
    assert declared() == explained


def test_every_area_of_setup_py_has_its_link() -> None:
    areas = re.search(r"^AREAS := (.*)$", MAKEFILE, re.MULTILINE)
    assert areas is not None
    in_setup = re.search(r"^AREAS = \[(.*)\]$", (ROOT / "setup.py").read_text(encoding="utf-8"), re.MULTILINE)
    assert in_setup is not None
    assert areas.group(1).split() == re.findall(r'"(\w+)"', in_setup.group(1))


def test_the_ci_script_is_sound() -> None:
    script = ROOT / ".ci" / "run"
    assert script.stat().st_mode & 0o111
    subprocess.run(["bash", "-n", str(script)], check=True)
