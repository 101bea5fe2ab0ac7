"""Only the map from import names to folders and the optional C codec; all else is in pyproject.toml."""

from glob import glob

from setuptools import Extension, find_packages, setup

AREAS = ["kraft", "logstore", "replication", "server", "sdk", "spark_connector", "proto"]
ELSEWHERE = {
    "kraftlog": "sdk/_root",
    "kraftlog.testing": "server/testing",
    "pyspark_kraftlog": "spark_connector/_discovery",
}
INSIDE = ["_root", "testing", "testing.*", "_discovery"]

setup(
    package_dir={**ELSEWHERE, **{f"kraftlog.{area}": area for area in AREAS}},
    packages=[
        *ELSEWHERE,
        *(f"kraftlog.testing.{sub}" for sub in find_packages("server/testing")),
        *(
            f"kraftlog.{package}"
            for area in AREAS
            for package in [area, *(f"{area}.{sub}" for sub in find_packages(area, exclude=INSIDE))]
        ),
    ],
    ext_modules=[
        Extension(
            "kraftlog.proto.records._codec",
            ["proto/records/_codec.c"],
            depends=sorted(glob("proto/records/_codec*.h")),
            extra_compile_args=["-O3"],
            optional=True,  # without a compiler the pure-Python reference codec is used
        )
    ],
)
