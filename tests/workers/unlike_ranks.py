"""One of two ranks that pass unlike tensors to a loss; writes what each call raised to a file, one line a case.

All cases run in one process, so that each also shows that the one before it left no rank waiting.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path

import torch
import torch.distributed as dist

from rankwise.losses import AUPRCLoss, EmbeddingLoss, NDCGLoss, create_loss
from rankwise.losses.baselines import ALRPLoss

ONE = {"scores": torch.linspace(-1, 1, 6), "labels": torch.tensor([0, 1, 0, 0, 1, 0])}
ROWS = {name: tensor.repeat(2, 1) for name, tensor in ONE.items()}
VECTORS = {"embeddings": torch.eye(6)[:, :4] + 0.1, "labels": torch.tensor([0, 0, 1, 1, 2, 2])}
BAD = torch.full((6,), torch.nan)
# For each case the loss, and what the second rank passes otherwise; None takes an argument away.
CASES = {
    "scores dtype": (AUPRCLoss, ONE, {"scores": ONE["scores"].double()}),
    "labels dtype": (AUPRCLoss, ONE, {"labels": ONE["labels"].float()}),
    "weights on one rank": (AUPRCLoss, ONE, {"weights": torch.ones(6)}),
    "query_ids on one rank": (AUPRCLoss, ONE, {"query_ids": torch.zeros(6, dtype=torch.int64)}),
    "sums that agree": (AUPRCLoss, ONE, {"scores": torch.linspace(-1, 1, 7), "labels": torch.ones(5).long()}),
    "labels of another length": (AUPRCLoss, ONE, {"labels": torch.ones(5).long()}),
    "query_ids of another length": (
        AUPRCLoss,
        ROWS | {"query_ids": torch.tensor([1, 2])},
        {"query_ids": torch.ones(3).long()},
    ),
    "dimensions": (AUPRCLoss, ONE, ROWS),
    "no tensor": (AUPRCLoss, ONE, {"scores": "abc"}),
    "not finite": (AUPRCLoss, ONE, {"scores": BAD}),
    "columns": (lambda: AUPRCLoss(lists="columns"), ROWS, {name: tensor[:, :5] for name, tensor in ROWS.items()}),
    "grades": (NDCGLoss, ONE, {"labels": ONE["labels"] - 1}),
    "width of embeddings": (lambda: EmbeddingLoss(AUPRCLoss()), VECTORS, {"embeddings": torch.eye(6)}),
    "embeddings not finite": (lambda: EmbeddingLoss(AUPRCLoss()), VECTORS, {"embeddings": BAD[:, None].expand(6, 4)}),
    "classes dtype": (lambda: EmbeddingLoss(AUPRCLoss()), VECTORS, {"labels": VECTORS["labels"].float()}),
    "previous on one rank": (lambda: EmbeddingLoss(AUPRCLoss()), VECTORS, {"previous_embeddings": torch.ones(6, 4)}),
    "pairs": (lambda: create_loss("contrastive"), VECTORS, {"embeddings": torch.eye(6)}),
    "alrp": (ALRPLoss, ONE | {"errors": torch.zeros(6)}, {"errors": torch.zeros(6).double()}),
    "second derivatives": (lambda: create_loss("cross-entropy"), ONE, {}),
}


def run(case: str, rank: int) -> dict[str, str]:
    build, given, other = CASES[case]
    loss = build()
    loss(**given)  # all alike: nothing to object to
    before = {name: tensor.clone() for name, tensor in loss.state_dict().items()}
    given = given | (other if rank else {})
    if case == "second derivatives":
        given["scores"] = given["scores"].clone().requires_grad_()
    try:
        value = loss(**given)
        if case == "second derivatives":
            torch.autograd.grad(value, given["scores"], create_graph=True)
    except (TypeError, ValueError, RuntimeError) as error:
        same = all(torch.equal(before[name], tensor) for name, tensor in loss.state_dict().items())
        return {"type": type(error).__name__, "message": str(error), "state": "the same" if same else "changed"}
    return {"type": "none", "message": "accepted", "state": ""}


def run_all(rank: int, world: int, folder: Path, cases: Sequence[str]) -> None:
    torch.set_num_threads(1)
    dist.init_process_group(
        "gloo", init_method=f"file://{folder}/ranks", rank=rank, world_size=world, timeout=timedelta(seconds=60)
    )
    with (folder / f"{rank}.jsonl").open("w") as lines:
        for case in cases:
            print(json.dumps({"case": case} | run(case, rank)), file=lines, flush=True)
    dist.destroy_process_group()
