"""Compare margins and discount shifts of the NDCG loss on cosines.

    python -m benchmarks.quality.cosine_margins [--seeds N]

Vectors of scikit-learn's digits by a network of 64-128-32, `EmbeddingLoss(NDCGLoss(margin, discount_shift))`, Adam at
.001, 200 steps of batches with 8 or 32 images of each class. Trained on five digits, measured on the other five, which
are unseen; every second seed changes over. Prints a Markdown table of mAP and saves it beside this file.
"""

from __future__ import annotations

import argparse
from itertools import product
from pathlib import Path

import torch
from sklearn.datasets import load_digits
from torch import Tensor, nn

from rankwise.losses import EmbeddingLoss, NDCGLoss
from rankwise.metrics import evaluate_retrieval

MARGINS = (0.1, 0.2, 0.5, 1.0)
SHIFTS = (0.0, 30.0)
PER_CLASS = (8, 32)
STEPS, RATE = 200, 1e-3


def train(loss: nn.Module, images: Tensor, labels: Tensor, per_class: int, seed: int) -> nn.Module:
    """Return the trained network."""
    torch.manual_seed(seed)
    network = nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 32))
    optimiser = torch.optim.Adam(network.parameters(), RATE)
    of_class = [(labels == each).nonzero().squeeze(1) for each in labels.unique()]
    for _ in range(STEPS):
        rows = torch.cat([each[torch.randperm(len(each))[:per_class]] for each in of_class])
        value = loss(network(images[rows]), labels[rows])
        optimiser.zero_grad()
        value.backward()
        optimiser.step()
    return network


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--seeds", type=int, default=4)
    parser.add_argument("--out", type=Path, default=Path(__file__).with_suffix(".md"))
    options = parser.parse_args()
    torch.set_num_threads(1)
    loaded, digits = load_digits(return_X_y=True)
    images, labels = torch.tensor(loaded, dtype=torch.float32) / 16, torch.tensor(digits)
    lines = ["| images per class | margin | " + " | ".join(f"shift {shift:g}" for shift in SHIFTS) + " |"]
    lines.append("|--:|--:|" + "--:|" * len(SHIFTS))
    for per_class, margin in product(PER_CLASS, MARGINS):
        cells = []
        for shift in SHIFTS:
            found = []
            for seed in range(options.seeds):
                known = (labels < 5) == (seed % 2 == 0)
                loss = EmbeddingLoss(NDCGLoss(margin=margin, discount_shift=shift))
                network = train(loss, images[known], labels[known], per_class, seed)
                with torch.no_grad():
                    vectors = network(images[~known])
                found.append(evaluate_retrieval(vectors, labels[~known], ["map"], bootstrap=0).means["map"])
            cells.append(f"{sum(found) / len(found):.3f}")
        lines.append(f"| {per_class} | {margin:g} | {' | '.join(cells)} |")
        print(lines[-1], flush=True)
    options.out.write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
