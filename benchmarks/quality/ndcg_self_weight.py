"""Which `self_weight` trains best from few items of long lists? `python -m benchmarks.quality.ndcg_self_weight`.

MovieLens-1M, implicit, matrix factorisation, 10 relevant and 200 irrelevant items per user and step. A tenth of each
user's training items is held out and ranked among all items the user has not in the rest; the test part is not
touched. Prints a Markdown table and saves it beside this file. Needs `movielens-1m-implicit` under `RANKWISE_DATA`.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from benchmarks.find import find_data
from rankwise.losses import ListStatistics, NDCGLoss
from rankwise.metrics import ndcg

DIMENSIONS, USERS_PER_BATCH = 64, 256
RELEVANT, IRRELEVANT = 10, 200
RATE, DECAY = 1e-2, 0.4
CASES: tuple[dict[str, Any], ...] = (
    {"self_weight": "exact"},
    {"self_weight": "sample"},
    {"self_weight": "naive"},
    {"self_weight": "exact", "discount_shift": 30.0},
)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--steps", type=int, default=600)
    steps = parser.parse_args().steps
    torch.set_num_threads(1)
    known, held_out = load()
    lines = [
        f"`python -m benchmarks.quality.ndcg_self_weight --steps {steps}`: held-out NDCG@10 on MovieLens-1M, matrix "
        f"factorisation, {RELEVANT} relevant and {IRRELEVANT} irrelevant of {known.shape[1]:,} items a user, one seed.",
        "",
        "| options | NDCG@10 |",
        "| --- | --: |",
    ]
    for options in CASES:
        words = ", ".join(f"{name}={value!r}" for name, value in options.items())
        lines.append(f"| `{words}` | {train(known, held_out, steps, options):.4f} |")
        print(lines[-1], flush=True)
    Path(__file__).with_suffix(".md").write_text("\n".join(lines) + "\n")


def load() -> tuple[Tensor, Tensor]:
    """(users, items) booleans: what each user is known to have, and what was held out."""
    file = find_data("movielens-1m-implicit") / "train.txt"
    rows = [list(map(int, line.split()))[1:] for line in file.read_text().splitlines()]
    known = torch.zeros(len(rows), 1 + max(map(max, rows)), dtype=torch.bool)
    for user, items in enumerate(rows):
        known[user, items] = True
    random = torch.Generator().manual_seed(0)
    held_out = known & (torch.rand(known.shape, generator=random) < 0.1)
    return known & ~held_out, held_out


def train(known: Tensor, held_out: Tensor, steps: int, options: dict[str, Any]) -> float:
    torch.manual_seed(0)
    users, items = (nn.Embedding(count, DIMENSIONS) for count in known.shape)
    for table in (users, items):
        nn.init.normal_(table.weight, std=0.1)
    pairs = known.nonzero()
    statistics = ListStatistics(torch.ones(len(pairs)), pairs[:, 0], size=known.shape[1])
    loss = NDCGLoss(statistics, **options)
    optimiser = torch.optim.AdamW([*users.parameters(), *items.parameters()], lr=RATE, weight_decay=DECAY)
    for _ in range(steps):
        batch = torch.randint(len(known), (USERS_PER_BATCH,)).unique()
        chance = torch.rand(len(batch), known.shape[1])
        relevant = (chance - known[batch].float() * 2).topk(RELEVANT, largest=False).indices
        irrelevant = (chance + known[batch].float() * 2).topk(IRRELEVANT, largest=False).indices
        drawn = torch.cat([relevant, irrelevant], 1)
        labels = known[batch].gather(1, drawn)
        # A user of fewer than 10 items has irrelevant ones in the places of the missing.
        mask = torch.ones_like(labels)
        mask[:, :RELEVANT] = labels[:, :RELEVANT]
        scores = torch.einsum("ud,uid->ui", users(batch), items(drawn))
        value = loss(scores, labels.long(), query_ids=batch, sample_ids=drawn, mask=mask)
        optimiser.zero_grad()
        value.backward()
        optimiser.step()
    with torch.no_grad():
        scores = (users.weight @ items.weight.T).masked_fill(known, -1e9)
    return float(ndcg(scores, held_out.long(), k=10))


if __name__ == "__main__":
    main()
