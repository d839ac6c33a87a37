"""Which margin does each surrogate of pAp@k need? `python -m benchmarks.quality.pap_margins [--seeds N]`.

One user with 250 positives and 2,000 negatives, 5 features, k = 30, made so that known weights w* meet one of the
margin conditions and not the next stronger one. Every loss is minimised on that list by a linear scorer, starting from
the cross-entropy solution; weights are chosen by pAp@30 on the same list, for the question is whether the loss can find
what is there. Prints Markdown tables and saves them beside this file.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path

import torch
from torch import Tensor

from rankwise.data import Part
from rankwise.losses import CrossEntropyLoss, ListLoss, PApLoss, pap_margins
from rankwise.metrics import pap
from rankwise.training import LinearRun, fit_linear, summarise

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
    lines += ["", f"pAp@{K} of the trained scorer, mean +- std over seeds:", "", header, rule]
    print("\n".join(lines), flush=True)
    for name, made in lists.items():
        starts = [_train(part, CrossEntropyLoss(), "zeros") for part, _ in made]
        reached = [
            [_train(part, PApLoss(K, surrogate=s), start).value for (part, _), start in zip(made, starts, strict=True)]
            for s in SURROGATES
        ]
        found = [summarise(values) for values in (*reached, [start.value for start in starts])]
        lines.append(f"| {name} | " + " | ".join(f"{f.mean:.3f} +- {f.std:.3f}" for f in found) + " |")
        print(lines[-1], flush=True)
    Path(__file__).with_suffix(".md").write_text("\n".join(lines) + "\n")


def _train(part: Part, loss: ListLoss, start: str | LinearRun) -> LinearRun:
    return fit_linear(part, part, loss, metric=f"pap@{K}", steps=STEPS, rates=RATES, penalties=PENALTIES, start=start)


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
