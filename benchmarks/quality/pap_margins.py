"""Which margin does each surrogate of pAp@k need? `python -m benchmarks.quality.pap_margins [--seeds N]`.

One user with 250 positives and 2,000 negatives, 5 features, k = 30, made so that known weights w* meet one of the
margin conditions and not the next stronger one. Every loss is minimised on that list by a linear scorer, from the same
random weights; what counts is pAp@30 of that list at the last step, for the question is where the loss itself leads.
Rate and penalty are those with the best step anywhere. Prints Markdown tables and saves them beside this file.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path

import torch
from torch import Tensor

from benchmarks.quality.linear import LinearRun, fit_linear
from rankwise.data import Part
from rankwise.losses import BinaryCrossEntropyLoss, ListLoss, PApLoss, pap_margins
from rankwise.metrics import pap
from rankwise.models import MLPScorer
from rankwise.problems.trials import summarise

POSITIVES, NEGATIVES, FEATURES, K = 250, 2000, 5, 30
STEPS, RATES, PENALTIES = 150, (0.1, 1.0), (0.0, 0.001)
SURROGATES = ("ramp", "avg", "avg+", "max", "ts", "ts*")

Case = tuple[Part, Tensor]
Draw = Callable[[torch.Generator], Tensor]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--seeds", type=int, default=5)
    seeds = range(parser.parse_args().seeds)
    header = "| condition | " + " | ".join((*SURROGATES, "cross entropy")) + " |"
    rule = "|---|" + "---|" * (len(SURROGATES) + 1)
    lines = [
        f"`python -m benchmarks.quality.pap_margins`: one user, {POSITIVES} positives, {NEGATIVES} negatives, "
        f"{FEATURES} features, k = {K}, {len(seeds)} seeds; {STEPS} steps, rates {RATES}, penalties {PENALTIES}.",
        "",
        f"What each loss costs at the weights w* that meet the condition (mean over seeds), and pAp@{K} there:",
        "",
        f"| condition | {' | '.join(SURROGATES)} | pAp@{K} of w* |",
        rule,
    ]
    lists = {name: [make(seed) for seed in seeds] for name, make in CONDITIONS.items()}
    for name, made in lists.items():
        costs = [f"{_mean([_cost(case, s) for case in made]):.3f}" for s in SURROGATES]
        there = _mean([pap(part.features @ weights, part.labels, k=K).item() for part, weights in made])
        lines.append(f"| {name} | " + " | ".join(costs) + f" | {there:.3f} |")
    lines += ["", f"pAp@{K} after the last step, mean +- std over seeds:", "", header, rule]
    print("\n".join(lines), flush=True)
    losses: list[ListLoss] = [*(PApLoss(K, surrogate=s) for s in SURROGATES), BinaryCrossEntropyLoss()]
    for name, made in lists.items():
        reached = [[_train(part, loss, seed) for seed, (part, _) in enumerate(made)] for loss in losses]
        found = [summarise(values) for values in reached]
        lines.append(f"| {name} | " + " | ".join(f"{f.mean:.3f} +- {f.std:.3f}" for f in found) + " |")
        print(lines[-1], flush=True)
    Path(__file__).with_suffix(".md").write_text("\n".join(lines) + "\n")


def _train(part: Part, loss: ListLoss, seed: int) -> float:
    metric = f"pap@{K}"
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        start = LinearRun(MLPScorer(FEATURES, hidden=()), rate=0.0, penalty=0.0, step=0, value=0.0)
    run = fit_linear(
        part, part, loss, metric=metric, steps=STEPS, rates=RATES, penalties=PENALTIES, start=start, eval_every=25
    )
    return run.curve[-1]


def _cost(case: Case, surrogate: str) -> float:
    part, weights = case
    return PApLoss(K, surrogate=surrogate)(part.features @ weights, part.labels).item()


def _mean(values: list[float]) -> float:
    return sum(values) / len(values)


def _case(condition: str, not_met: tuple[str, ...], positives: Draw) -> Callable[[int], Case]:
    """Makes a list and weights w* under which the negatives score at most 0 and the positives what is drawn."""

    def make(seed: int) -> Case:
        generator = torch.Generator().manual_seed(seed)
        negatives = -torch.randn(NEGATIVES, generator=generator).abs()
        negatives -= negatives.max()  # the best stands at 0
        scores = torch.cat([positives(generator), negatives])
        labels = (torch.arange(len(scores)) < POSITIVES).long()
        # w* is one direction of a random frame; the others hold noise that says nothing.
        frame, _ = torch.linalg.qr(torch.randn(FEATURES, FEATURES, generator=generator))
        noise = torch.randn(len(scores), FEATURES - 1, generator=generator)
        features = torch.cat([scores[:, None], noise], 1) @ frame.T
        order = torch.randperm(len(scores), generator=generator)
        features, labels = features[order], labels[order]
        weights = frame[:, 0]
        margins = pap_margins(features @ weights, labels, k=K)
        for name in (condition, *not_met):
            assert (getattr(margins, name).item() >= 1 - 1e-4) == (name == condition), (condition, name, margins)
        return Part(features, labels), weights

    return make


def _above_one(count: int, generator: torch.Generator) -> Tensor:
    return 1 + 0.001 + torch.rand(count, generator=generator)


def _strong(generator: torch.Generator) -> Tensor:
    return _above_one(POSITIVES, generator)


def _moderate(generator: torch.Generator) -> Tensor:
    rest = 0.001 + 0.8 * torch.rand(POSITIVES - K, generator=generator)
    return torch.cat([_above_one(K, generator), rest])


def _weak(generator: torch.Generator) -> Tensor:
    rest = -3 * torch.rand(POSITIVES - K, generator=generator) - 0.1
    return torch.cat([_above_one(K, generator), rest])


def _beta(generator: torch.Generator) -> Tensor:
    """A few positives so high that their mean is far above, while most stand among the negatives."""
    high = 20 + torch.rand(K // 2, generator=generator)
    rest = -0.2 * torch.rand(POSITIVES - K // 2, generator=generator)
    return torch.cat([high, rest])


CONDITIONS = {
    "weak only": _case("weak", ("beta", "moderate", "strong"), _weak),
    "beta only": _case("beta", ("weak", "moderate", "strong"), _beta),
    "moderate": _case("moderate", ("strong",), _moderate),
    "strong": _case("strong", (), _strong),
}


if __name__ == "__main__":
    main()
