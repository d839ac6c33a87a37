"""Which `link` should SOPRC use, for scores of which size? `python -m benchmarks.quality.links [--seeds N]`.

The eights task of `rankwise demo`, the same network, its output multiplied by 1, 20 and 400: the scores a model starts
with lie within [-1, 1], go well beyond, or far beyond. The learning rate is chosen on validation for each cell.
Prints a Markdown table of test average precision and saves it beside this file.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from torch import Tensor, nn

from rankwise.data import TableSchema, load_eights
from rankwise.problems import Tabular
from rankwise.problems.trials import Contender, compete

LINKS = ("scale", "none", "tanh", "sigmoid")
FACTORS = (1, 20, 400)
RATES = (0.001, 0.003, 0.01, 0.03)
STEPS = 100


class Loud(Tabular):
    """The tabular problem with the scores of the model multiplied by a constant."""

    factor: float = 1.0

    def build_model(self, schema: TableSchema) -> nn.Module:
        return nn.Sequential(super().build_model(schema), _Multiply(self.factor))


class _Multiply(nn.Module):
    def __init__(self, factor: float) -> None:
        super().__init__()
        self.factor = factor

    def forward(self, scores: Tensor) -> Tensor:
        return scores * self.factor


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--seeds", type=int, default=5)
    seeds = range(parser.parse_args().seeds)
    lines = [
        f"`python -m benchmarks.quality.links`: test AP of SOPRC on the eights, mean +- std of {len(seeds)} seeds, "
        f"{STEPS} steps, learning rate chosen on validation from {RATES}.",
        "",
        "| scores of the untrained model times | " + " | ".join(f'`link="{link}"`' for link in LINKS) + " |",
        "| --: |" + " --: |" * len(LINKS),
    ]
    print("\n".join(lines), flush=True)
    for factor in FACTORS:
        cells = []
        for link in LINKS:
            outcome = compete(Contender(link, _problem(link, factor), load_eights, STEPS), seeds=seeds, rates=RATES)
            found = outcome.summary("ap")
            cells.append(f"{found.mean:.3f} +- {found.std:.3f}")
        lines.append(f"| {factor} | " + " | ".join(cells) + " |")
        print(lines[-1], flush=True)
    Path(__file__).with_suffix(".md").write_text("\n".join(lines) + "\n")


def _problem(link: str, factor: float) -> Loud:
    return Loud(
        loss={"name": "soprc", "link": link},
        model={"hidden": (64,), "scaling": "none"},
        batches={"size": 64, "positives": 8},
        metrics=("ap",),
        factor=factor,
    )


if __name__ == "__main__":
    main()
