"""How far rounding carries what the estimators remember in float32 from what they would remember in float64.

python -m benchmarks.trust.drift --updates 1000000 --out drift.json

Every estimator gets the same noisy observations of a drifting quantity in both precisions, one update after another.
The drift is the largest difference since the update before last reported, relative to the size of the observations.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable
from pathlib import Path

import torch
from torch import Tensor, nn

from rankwise.estimators import MeanTracker, PairAverages, QuantileTracker, ThresholdTracker

# Relative to the observations; float32 has a relative precision of 6e-8.
LARGEST_DRIFT = 1e-4
ROWS = 4

Update = Callable[[nn.Module, Tensor, Tensor], Tensor]
_IDS, _PRESENT = torch.tensor([3, -7, 2**62, 0]), torch.ones(ROWS, dtype=torch.bool)
_PAIRS = torch.stack([_IDS, _IDS.flip(0)], 1)
_SHARE, _SIZE = torch.full((ROWS, 6), 1 / 6), torch.full((ROWS,), 6)

# How each is built, and what it makes of observations (ROWS, 6) and those before them.
ESTIMATORS: dict[str, tuple[Callable[[], nn.Module], Update]] = {
    "mean, rate .01": (lambda: MeanTracker(0.01), lambda each, now, _: each(now[:, 0], _PRESENT, _IDS)),
    "mean with previous weights, rate .01": (
        lambda: MeanTracker(0.01),
        lambda each, now, before: each(now[:, 0], _PRESENT, _IDS, before[:, 0]),
    ),
    "quantiles, rate .1": (lambda: QuantileTracker(6, 0.1), lambda each, now, _: each(now, _PRESENT, _IDS)),
    "pair averages, rate .001": (lambda: PairAverages(0.001), lambda each, now, _: each(_PAIRS, now[:, 0])),
    "pair averages of logarithms, rate .1": (
        lambda: PairAverages(0.1, space="log"),
        lambda each, now, _: each(_PAIRS, now[:, 0]),
    ),
    "threshold, step .25": (
        lambda: ThresholdTracker(2, tau=0.1),
        lambda each, now, _: each(now, _SHARE.to(now.dtype), _SIZE, _IDS).value,
    ),
}


def drift(name: str, updates: int, seed: int = 0) -> dict[int, float]:
    """The largest relative difference between float32 and float64, by the number of updates done."""
    build, update = ESTIMATORS[name]
    single, double = build(), build().double()
    generator = torch.Generator().manual_seed(seed)
    found, worst, before = {}, 0.0, torch.zeros(ROWS, 6)
    for number in range(1, updates + 1):
        if number % 1000 == 1:  # drawn in blocks: drawing takes longer than updating
            noise = torch.randn(1000, ROWS, 6, generator=generator)
            centre = 10 * torch.sin(torch.arange(number, number + 1000) / 5000)[:, None, None] + 3
            block = noise + centre
        now = block[(number - 1) % 1000]
        low = update(single, now, before)
        high = update(double, now.double(), before.double())
        if number % 97 == 0 or number == updates:
            worst = max(worst, float((low.double() - high).abs().max()) / 10)
        before = now
        if number in (10**3, 10**4, 10**5, 10**6) or number == updates:
            found[number] = worst
    return found


def main() -> int:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--updates", type=int, default=1_000_000)
    options.add_argument("--out", type=Path, default=Path("drift.json"))
    given = options.parse_args()
    torch.set_num_threads(1)
    done: dict[str, dict[str, float]] = json.loads(given.out.read_text()) if given.out.exists() else {}
    for name in ESTIMATORS:
        if str(given.updates) not in done.get(name, {}):
            done[name] = {str(updates): value for updates, value in drift(name, given.updates).items()}
            given.out.write_text(json.dumps(done, indent=1) + "\n")
        print(f"{name:40}", "  ".join(f"{updates}: {value:.1e}" for updates, value in done[name].items()), flush=True)
    return int(max(max(found.values()) for found in done.values()) > LARGEST_DRIFT)


if __name__ == "__main__":
    sys.exit(main())
