"""One rank of a small data-parallel training; writes gradients, weights and loss state of every step to a file."""

from __future__ import annotations

import copy
from collections.abc import Callable

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

from rankwise.data import Boxes
from rankwise.losses import (
    AUPRCLoss,
    EmbeddingLoss,
    LateMemoryLoss,
    ListStatistics,
    ListwiseCELoss,
    NDCGLoss,
    SemiVarianceLoss,
    StableAPLoss,
    SumLoss,
    TopKNDCGLoss,
    create_loss,
)
from rankwise.losses.baselines import ALRPLoss, GumbelApproxNDCGLoss
from rankwise.models import Anchors, FeatureMixup, Sampled

STEPS = 4
ANCHORS = Anchors(
    torch.tensor([[x, y, x + 8, y + 8] for y in range(0, 16, 4) for x in range(0, 16, 4)], dtype=torch.float64), (16,)
)
SAMPLED = ("song", "k-song", "k-song full", "solc")


def train_all(rank: int, world: int, folder: str, kinds: list[str]) -> None:
    torch.set_num_threads(1)
    # In float64, so that rounding in other orders is not taken for a difference between methods.
    torch.set_default_dtype(torch.float64)
    for number, kind in enumerate(kinds):
        train(kind, rank, world, f"{folder}/rendezvous-{number}", f"{folder}/{kind}-{rank}.pt")


def global_batch(step: int, items: int) -> dict[str, torch.Tensor]:
    generator = torch.Generator().manual_seed(100 + step)
    return {
        "features": torch.randn(items, 6, generator=generator),
        "labels": (torch.rand(items, generator=generator) < 0.3).long(),
        "queries": torch.randint(-2, 3, (items,), generator=generator),
        "classes": torch.randint(0, 4, (items,), generator=generator),
        "items": torch.randperm(2 * items, generator=generator)[:items],
    }


def boxes_of(step: int, rank: int, world: int) -> tuple[torch.Tensor, Boxes]:
    """At most two objects in an image of 16 x 16 pixels, some of them ignored, some images without any."""
    generator = torch.Generator().manual_seed(500 + step)
    low = torch.rand(41, 2, 2, generator=generator) * 8
    corners = torch.cat([low, low + 3 + 5 * torch.rand(41, 2, 2, generator=generator)], 2)
    mask, ignored = (torch.rand(41, 2, generator=generator) < share for share in (0.7, 0.1))
    labels = torch.randint(0, 2, (41, 2), generator=generator)
    labels, *boxes = (part(each, rank, world, step) for each in (labels, corners, mask, ignored))
    return labels, Boxes(*boxes)


def part(tensor: torch.Tensor, rank: int, world: int, step: int) -> torch.Tensor:
    """Uneven shares; in the last step all but the first rank come away with one item or none."""
    if world == 1:
        return tensor
    if step == STEPS - 1:
        return tensor[: len(tensor) - 1] if rank == 0 else tensor[len(tensor) - 1 :] if rank == 1 else tensor[:0]
    cuts = [0, *(len(tensor) * (r + 1) // world + (r % 2) * 3 for r in range(world - 1)), len(tensor)]
    return tensor[cuts[rank] : cuts[rank + 1]]


def build(kind: str) -> torch.nn.Module:
    # Lists of 100 items, 50 of them relevant, of which a batch holds some.
    statistics = ListStatistics(torch.arange(500) % 4 * (torch.arange(500) % 2), torch.arange(500) // 100 - 2)
    builders: dict[str, Callable[[], torch.nn.Module]] = {
        "one list": AUPRCLoss,
        "ragged": lambda: SumLoss(AUPRCLoss(), SemiVarianceLoss(3, 15)),
        "embedding": lambda: EmbeddingLoss(AUPRCLoss()),
        "columns": lambda: AUPRCLoss(lists="columns"),
        "soap": lambda: create_loss("soap"),
        "memory": lambda: create_loss("cross-batch-memory", memory=60),
        "memory embedding": lambda: LateMemoryLoss(AUPRCLoss(), memory=100, after=1),
        "stable one list": StableAPLoss,
        "stable ragged": lambda: StableAPLoss("batch", outer="batch", update_rate=0.1),
        "stable embedding": lambda: EmbeddingLoss(StableAPLoss(update_rate=0.1)),
        "mixed embedding": lambda: EmbeddingLoss(StableAPLoss(update_rate=0.1)),
        "song": lambda: NDCGLoss(statistics, update_rate=0.3),
        "k-song": lambda: TopKNDCGLoss(5, statistics),
        "k-song full": lambda: TopKNDCGLoss(5, statistics, selector_gradient="full", threshold_tau=0.1),
        "solc": lambda: ListwiseCELoss(statistics),
        "noise": GumbelApproxNDCGLoss,
    }
    if kind not in builders:
        builders = _detection_builders()
    return builders[kind]()


def _detection_builders() -> dict[str, Callable[[], torch.nn.Module]]:
    # These need more than torch and numpy.
    from rankwise.problems.detection import DetectionLoss, ProposalLoss

    return {
        "detector": lambda: DetectionLoss(StableAPLoss(lists="columns", update_rate=0.1), ANCHORS, 2),
        "joint detector": lambda: DetectionLoss(AUPRCLoss(), ANCHORS, 2, lists="all"),
        "balanced detector": lambda: DetectionLoss(AUPRCLoss(), ANCHORS, 2, lists="balanced"),
        "alrp detector": lambda: DetectionLoss(ALRPLoss(), ANCHORS, 2),
        "proposals": lambda: ProposalLoss(StableAPLoss(lists="columns", update_rate=0.1), 2),
    }


def train(kind: str, rank: int, world: int, rendezvous: str, out: str) -> None:
    # Built before the process group exists: a loss must ask for it when it is called.
    loss = build(kind)
    dist.init_process_group("gloo", init_method=f"file://{rendezvous}", rank=rank, world_size=world)
    torch.manual_seed(0)
    model = DistributedDataParallel(
        torch.nn.Linear(
            6, {"embedding": 5, "memory": 5, "columns": 3, "proposals": 2, "detector": 16 * 6}.get(kind.split()[-1], 1)
        )
    )
    optimiser = torch.optim.SGD(model.parameters(), lr=0.5)
    earlier = copy.deepcopy(model.module)  # the model before the last step
    record = []
    for step in range(STEPS):
        batch = {name: part(t, rank, world, step) for name, t in global_batch(step, 41).items()}
        output = model(batch["features"])
        if kind in ("embedding", "memory", "memory embedding"):
            value = loss(output, batch["classes"])
        elif kind == "columns":
            value = loss(output, torch.stack([batch["classes"] == c for c in range(3)], 1).long())
        elif kind.endswith("detector"):
            labels, boxes = boxes_of(step, rank, world)
            value = loss(output.view(-1, 16, 6), labels, boxes)
        elif kind == "proposals":
            sampled = Sampled(output, batch["classes"] % 3 - 1, output.new_zeros(()), output.new_zeros(()), [])
            value = loss(sampled, previous=earlier(batch["features"]).detach())
        elif kind in SAMPLED:
            value = loss(output[:, 0], batch["classes"], query_ids=batch["queries"], sample_ids=batch["items"])
        elif kind in ("ragged", "noise"):
            value = loss(output[:, 0], batch["labels"], query_ids=batch["queries"])
        elif kind == "soap":
            value = loss(output[:, 0], batch["labels"], sample_ids=batch["items"])
        elif kind == "mixed embedding":
            # Samples of a class are equal, so that every mixture of them is the same, whoever draws it.
            mix, same = FeatureMixup(), torch.cos(batch["classes"][:, None] + torch.arange(6.0))
            features, classes = mix(same, batch["classes"])
            value = loss(model(features), classes, previous_embeddings=earlier(features))
        elif kind == "stable embedding":
            value = loss(output, batch["classes"], previous_embeddings=earlier(batch["features"]))
        elif kind == "stable ragged":
            before = earlier(batch["features"])[:, 0].detach()
            value = loss(output[:, 0], batch["labels"], query_ids=batch["queries"], previous_scores=before)
        else:
            value = loss(output[:, 0], batch["labels"])
        optimiser.zero_grad()
        value.backward()
        record.append({n: p.grad.clone() for n, p in model.module.named_parameters()} | {"value": value.detach()})
        earlier = copy.deepcopy(model.module)
        optimiser.step()
    torch.save({"steps": record, "state": loss.state_dict(), "model": model.module.state_dict()}, out)
    dist.destroy_process_group()
