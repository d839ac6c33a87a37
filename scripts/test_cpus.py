"""Run the numeric tests as other CPUs run them: `python scripts/test_cpus.py [--quick] [--setting NAME] [PATH ...]`.

How sums, products and exponentials are rounded depends on the instruction set and on the number of threads. Each of the
`SETTINGS` holds the libraries to older instructions or to a number of threads. They read these variables when they are
loaded, so each setting is a process of its own. The column "other bits" names the libraries that round otherwise than
with no setting at all: a setting that changes nothing tests nothing new on this CPU.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

ROOT = Path(__file__).resolve().parents[1]
# numpy's own names (it has two sets of them) for what it would use of this CPU.
NUMPY_FEATURES: list[str] = np.show_config(mode="dicts").get("SIMD Extensions", {}).get("found", [])
AVX512 = re.compile("AVX512|X86_V4")


def threads(count: int) -> dict[str, str]:
    return dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"), str(count))


SSE42 = {
    "ATEN_CPU_CAPABILITY": "default",
    "MKL_ENABLE_INSTRUCTIONS": "SSE4_2",
    "ONEDNN_MAX_CPU_ISA": "SSE41",
    "OPENBLAS_CORETYPE": "Nehalem",
    "NPY_DISABLE_CPU_FEATURES": " ".join(NUMPY_FEATURES),
}
AVX2 = {
    "ATEN_CPU_CAPABILITY": "avx2",
    "MKL_ENABLE_INSTRUCTIONS": "AVX2",
    "ONEDNN_MAX_CPU_ISA": "AVX2",
    "OPENBLAS_CORETYPE": "Haswell",
    "NPY_DISABLE_CPU_FEATURES": " ".join(filter(AVX512.match, NUMPY_FEATURES)),
}
SETTINGS: dict[str, dict[str, str]] = {
    "1 thread": threads(1),
    "2 threads": threads(2),
    "3 threads": threads(3),
    "AVX2": AVX2 | threads(1),
    "AVX2, 2 threads": AVX2 | threads(2),
    "SSE4.2": SSE42 | threads(1),
    "SSE4.2, 3 threads": SSE42 | threads(3),
    # MKL takes MKL_ENABLE_INSTRUCTIONS on Intel CPUs only, this one on all.
    "MKL compatible": {"MKL_CBWR": "COMPATIBLE"} | threads(1),
}
PACKAGES = ("losses", "metrics", "estimators", "pairs", "models")
MODULES = ("lists", "ranks", "sorting", "surrogates")
NUMERIC = [
    *(f"tests/{name}" for name in (*PACKAGES, "sklearn_estimators")),
    *(f"tests/test_{name}.py" for name in (*MODULES, "gains")),
    *(f"src/rankwise/{name}" for name in (*PACKAGES, "sklearn")),
    *(f"src/rankwise/{name}.py" for name in MODULES),
]
# Those that compare what went through tiles, chunks, another order or a training.
FRAGILE = [
    "tests/losses/test_similarity.py",
    "tests/losses/test_similarity_lists.py",
    "tests/losses/test_ndcg_baselines.py::test_value_and_gradient_are_those_of_the_definition",
    "tests/losses/test_ndcg_baselines.py::test_following_the_gradient_sorts_the_lists",
    "tests/metrics/test_compare.py",
    "tests/metrics/test_retrieval.py",
    "tests/models/test_chunks.py",
    "tests/models/test_recommenders.py",
    "tests/sklearn_estimators/test_classifier.py::test_partial_fit_goes_on_and_forgets_nothing",
    "tests/sklearn_estimators/test_rankers.py::test_query_ids_may_be_words_in_any_order",
    "tests/sklearn_estimators/test_rankers.py::test_weight_zero_is_absence",
]
# One operation of each library, of numbers that no library has rounded.
PROBE = """
import hashlib, math, numpy, torch
numbers = numpy.array([math.sin(i * i) for i in range(200 * 300)]).reshape(200, 300)
double, single = torch.from_numpy(numbers), torch.from_numpy(numbers.astype("float32"))
results = {
    "ATen": single.log_softmax(1),
    "MKL": double @ double.T,
    "oneDNN": torch.nn.functional.conv2d(single.view(1, 6, 100, 100), single.view(-1)[:432].view(8, 6, 3, 3)),
    "numpy": torch.from_numpy(numpy.append(numpy.log(abs(numbers)), numpy.exp(single.numpy()))),
    "OpenBLAS": torch.from_numpy(numbers.astype("float32") @ numbers.astype("float32").T),
}
for name, result in results.items():
    print(name, hashlib.sha256(result.numpy().tobytes()).hexdigest())
"""


@dataclass(frozen=True)
class Outcome:
    """What pytest counted, and the ids of the tests that failed."""

    passed: int
    failed: int
    skipped: int
    seconds: float
    failures: tuple[str, ...]


def main() -> int:
    parser = argparse.ArgumentParser(description="Run the numeric tests as other CPUs run them.")
    parser.add_argument("--quick", action="store_true", help="only the most fragile files, and only as with AVX2")
    parser.add_argument("--setting", action="append", choices=SETTINGS, help="only this one; may be repeated")
    parser.add_argument("--workers", type=int, default=1, help="processes that share the tests of a setting")
    parser.add_argument("paths", nargs="*", help="tests to run instead")
    given = parser.parse_args()
    names = given.setting or (["AVX2"] if given.quick else SETTINGS)
    paths = given.paths or (FRAGILE if given.quick else NUMERIC)
    usual, failures = probe({}), []
    print(f"{'setting':<20}{'passed':>8}{'failed':>8}{'skipped':>8}{'seconds':>9}  other bits")
    for name in names:
        variables = SETTINGS[name]
        outcome = run_tests(variables, paths, given.workers)
        other = [library for library, bits in probe(variables).items() if bits != usual[library]]
        counts = f"{outcome.passed:>8}{outcome.failed:>8}{outcome.skipped:>8}{outcome.seconds:>9.0f}"
        print(f"{name:<20}{counts}  {', '.join(other) or 'none'}", flush=True)
        failures += [f"{name}: {each}" for each in outcome.failures]
    print("\n".join(failures), end="\n" if failures else "")
    return int(bool(failures))


def run_tests(variables: Mapping[str, str], paths: Sequence[str], workers: int = 1) -> Outcome:
    """Run pytest in a process with these variables; a run without a single test counts as a failure."""
    command = [sys.executable, "-m", "pytest", "-q", "-rfE", "--no-header", "--tb=short", *paths]
    if workers > 1:
        command += ["-n", str(workers), "--dist", "worksteal"]
    began = time.perf_counter()
    # torch.compile would take code from its cache that was compiled for other instructions.
    with tempfile.TemporaryDirectory() as cache:
        environment = _environment(variables) | {"TORCHINDUCTOR_CACHE_DIR": cache}
        done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)
    seconds = time.perf_counter() - began
    last = done.stdout.splitlines()[-1] if done.stdout else ""
    counts = {word: int(count) for count, word in re.findall(r"(\d+) (passed|failed|skipped|errors?)\b", last)}
    failures = tuple(re.findall(r"^(?:FAILED|ERROR) (\S+)", done.stdout, re.MULTILINE))
    if done.returncode:
        print(done.stdout, done.stderr, sep="\n", file=sys.stderr)
        failures = failures or (f"pytest ended with {done.returncode}",)
    failed = sum(counts.get(word, 0) for word in ("failed", "error", "errors"))
    return Outcome(counts.get("passed", 0), failed, counts.get("skipped", 0), seconds, failures)


def probe(variables: Mapping[str, str]) -> dict[str, str]:
    """Return a digest of one operation of each library under these variables."""
    done = subprocess.run(
        [sys.executable, "-c", PROBE], env=_environment(variables), capture_output=True, text=True, check=True
    )
    return dict(re.findall(r"(\S+) (\S+)", done.stdout))


def _environment(variables: Mapping[str, str]) -> dict[str, str]:
    """Return the caller's variables without those of any setting, and with these."""
    held = {name for setting in SETTINGS.values() for name in setting}
    return {name: value for name, value in os.environ.items() if name not in held} | dict(variables)


if __name__ == "__main__":
    sys.exit(main())
