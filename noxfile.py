"""Run the suite with the lowest and the newest versions of what rankwise needs, on each Python, and test the wheel.

`nox --session newest-3.13`; arguments after `--` go to pytest. uv makes the environments and resolves the versions.
"""

from __future__ import annotations

import re
import shutil
import tarfile
import tempfile
from pathlib import Path

import nox

nox.needs_version = ">=2024.10.9"
nox.options.default_venv_backend = "uv"
nox.options.sessions = ["core-lowest", "lowest", "newest", "wheel"]

PROJECT = nox.project.load_toml("pyproject.toml")
PYTHONS = nox.project.python_versions(PROJECT)
LOWEST = "--resolution=lowest-direct"
# Old versions of libraries warn of each other, and torch 2.10 of what it calls itself.
OLD_WARNINGS = ("-W", "default::DeprecationWarning")
EVERYTHING = ("--extra=all", "--extra=test")
# What runs the tests; the rest of the extra `test` is what they compare with.
RUNNERS = [
    line
    for line in PROJECT["project"]["optional-dependencies"]["test"]
    if re.match("(pytest|pytest-xdist|hypothesis)>", line)
]
# The two files of the core, wherever it is installed, that need more: torchmetrics and pytorch-metric-learning.
NEED_MORE = ("--ignore-glob=/*/metrics/classes.py", "--ignore-glob=/*/baselines/metric_learning.py")
ENVIRONMENT = {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "PYTHONPATH": None}


@nox.session(name="core-lowest", python=PYTHONS)
def core_lowest(session: nox.Session) -> None:
    """The core with the lowest torch and numpy, and nothing else."""
    install(session, LOWEST, *RUNNERS)
    run_tests(session, *OLD_WARNINGS, *core_tests())


@nox.session(name="core-newest", python=PYTHONS)
def core_newest(session: nox.Session) -> None:
    """The core with the newest torch and numpy, and nothing else."""
    install(session, *RUNNERS)
    run_tests(session, *core_tests())


@nox.session(python=PYTHONS)
def lowest(session: nox.Session) -> None:
    """Everything, with the lowest version of each direct dependency."""
    install(session, LOWEST, *EVERYTHING)
    run_tests(session, *OLD_WARNINGS)


@nox.session(python=PYTHONS)
def newest(session: nox.Session) -> None:
    """Everything, with the newest versions."""
    install(session, *EVERYTHING)
    run_tests(session)


@nox.session
def wheel(session: nox.Session) -> None:
    """Build; test the core, by the tests of the sdist, with the wheel, torch and numpy only; then run `demo`."""
    shutil.rmtree("dist", ignore_errors=True)
    session.run("uv", "build", "--quiet", "--out-dir", "dist")
    session.notify("demo")
    (source,) = Path("dist").glob("*.tar.gz")
    session.install(str(built_wheel()), *RUNNERS)
    with tempfile.TemporaryDirectory() as folder:
        with tarfile.open(source) as archive:
            archive.extractall(folder)  # noqa: S202 (made above)
        (unpacked,) = Path(folder).iterdir()
        shutil.rmtree(unpacked / "src")
        session.chdir(unpacked)
        run_tests(session, *core_tests())


@nox.session
def demo(session: nox.Session) -> None:
    """Install the built wheel with its extra `demo` and run `rankwise demo --quick` in an empty folder."""
    session.install(f"{built_wheel()}[demo]")
    with tempfile.TemporaryDirectory() as folder:
        session.chdir(folder)
        session.run("rankwise", "demo", "--quick", env=ENVIRONMENT)
        if not Path("report.html").is_file():
            session.error("rankwise demo wrote no report.html")


def install(session: nox.Session, *wanted: str) -> None:
    """Install what is wanted beside torch and numpy, from wheels only, and this checkout."""
    session.install("--no-build", "--requirement=pyproject.toml", *wanted)
    session.install("--no-deps", "--editable=.")


def run_tests(session: nox.Session, *chosen: str) -> None:
    session.run("uv", "pip", "freeze", "--exclude-editable")
    session.run("python", "-m", "pytest", *(session.posargs or ["-n2", "--dist=worksteal"]), *chosen, env=ENVIRONMENT)


def core_tests() -> list[str]:
    """Return the tests and doctests of the core: of `losses`, `samplers` and the layers below them.

    They need torch, numpy and what runs tests; those that compare with another library are skipped without it.
    """
    layers = next(each["layers"] for each in PROJECT["tool"]["importlinter"]["contracts"] if each["type"] == "layers")
    names = [re.findall(r"\w+", layer) for layer in layers]
    top = next(index for index, layer in enumerate(names) if "losses" in layer)
    core = [name for layer in names[top:] for name in layer]
    paths = [Path("tests", file) for name in core for file in (name, f"test_{name}.py")]
    tests = [str(path) for path in paths if path.exists()]
    doctests = [f"rankwise.{name}" for name in core]
    return [*NEED_MORE, "tests/test_imports.py", *tests, "--pyargs", *doctests]


def built_wheel() -> Path:
    (found,) = Path("dist").resolve().glob("*.whl")
    return found
