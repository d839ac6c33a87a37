"""How far is the gradient from sampled lists from that of whole lists? `python -m benchmarks.quality.ndcg_gradient`.

300 lists of 50 items, 5 of them relevant, with fixed random scores. A step draws 2 relevant and 3 irrelevant items of
each list; after 100 steps the moving averages have settled, and the gradients of the next 400 are compared with the
gradient from all items: that of their mean (the bias) and that of one step (bias and noise), relative to its length.
The last table asks how long the first step is when averages start at zero instead of at the first observation.
Prints Markdown tables and saves them beside this file.
"""

from __future__ import annotations

from pathlib import Path

import torch
from torch import Tensor

from rankwise.losses import ListStatistics, NDCGLoss

LISTS, ITEMS, RELEVANT = 300, 50, 5
DRAWN_RELEVANT, DRAWN_IRRELEVANT = 2, 3
SETTLING, STEPS = 100, 400
RATES = (1.0, 0.3, 0.1)
SELF_WEIGHTS = ("exact", "sample", "naive")


def main() -> None:
    torch.set_num_threads(1)
    random = torch.Generator().manual_seed(0)
    labels = (torch.arange(ITEMS) < RELEVANT).long().expand(LISTS, ITEMS)
    scores = torch.randn(LISTS, ITEMS, generator=random, dtype=torch.float64) + 2 * labels
    statistics = ListStatistics(labels.flatten(), torch.arange(LISTS).repeat_interleave(ITEMS))
    truth = _gradient(NDCGLoss(), scores, labels, torch.arange(ITEMS).expand(LISTS, ITEMS))
    lines = [
        f"`python -m benchmarks.quality.ndcg_gradient`: error of the gradient relative to that of whole lists "
        f"({LISTS} lists of {ITEMS} items, {RELEVANT} relevant; {DRAWN_RELEVANT} + {DRAWN_IRRELEVANT} drawn per step).",
        "",
        "| `self_weight` | " + " | ".join(f"`update_rate={r}`: mean / one step" for r in RATES) + " |",
        "| --- |" + " --: |" * len(RATES),
    ]
    for self_weight in SELF_WEIGHTS:
        cells = []
        for rate in RATES:
            loss = NDCGLoss(statistics, update_rate=rate, self_weight=self_weight).double()
            bias, noise = _errors(loss, scores, labels, truth)
            cells.append(f"{bias:.2f} / {noise:.2f}")
        lines.append(f'| `"{self_weight}"` | ' + " | ".join(cells) + " |")
    lines += ["", *_first_steps(statistics, scores, labels)]
    print("\n".join(lines))
    Path(__file__).with_suffix(".md").write_text("\n".join(lines) + "\n")


def _errors(loss: NDCGLoss, scores: Tensor, labels: Tensor, truth: Tensor) -> tuple[float, float]:
    random = torch.Generator().manual_seed(1)
    total, squares = torch.zeros_like(truth), 0.0
    for step in range(SETTLING + STEPS):
        found = _gradient(loss, scores, labels, _draw(random))
        if step >= SETTLING:
            total += found / STEPS
            squares += float((found - truth).square().sum()) / STEPS
    length = float(truth.norm())
    return float((total - truth).norm()) / length, squares**0.5 / length


def _first_steps(statistics: ListStatistics, scores: Tensor, labels: Tensor) -> list[str]:
    everything = torch.arange(ITEMS).expand(LISTS, ITEMS)
    lengths = []
    for start in ("first observation", "zero"):
        loss = NDCGLoss(statistics).double()
        if start == "zero":
            assert loss.averages is not None
            pairs = torch.cartesian_prod(torch.arange(LISTS), torch.arange(RELEVANT))
            loss.averages.table.update(pairs, torch.zeros(len(pairs), 1), 1.0)
        lengths.append(float(_gradient(loss, scores, labels, everything).norm()))
    exact = float(_gradient(NDCGLoss(), scores, labels, everything).norm())
    return [
        "| averages start at | length of the first step, all items drawn, relative to the true gradient |",
        "| --- | --: |",
        f"| the first observation | {lengths[0] / exact:.2f} |",
        f"| zero | {lengths[1] / exact:.2f} |",
    ]


def _draw(random: torch.Generator) -> Tensor:
    """Which items of each list a step sees, (LISTS, drawn)."""
    relevant = torch.rand(LISTS, RELEVANT, generator=random).argsort(1)[:, :DRAWN_RELEVANT]
    irrelevant = torch.rand(LISTS, ITEMS - RELEVANT, generator=random).argsort(1)[:, :DRAWN_IRRELEVANT] + RELEVANT
    return torch.cat([relevant, irrelevant], 1)


def _gradient(loss: NDCGLoss, scores: Tensor, labels: Tensor, drawn: Tensor) -> Tensor:
    scores = scores.clone().requires_grad_()
    value = loss(scores.gather(1, drawn), labels.gather(1, drawn), query_ids=torch.arange(LISTS), sample_ids=drawn)
    return torch.autograd.grad(value, scores)[0]


if __name__ == "__main__":
    main()
