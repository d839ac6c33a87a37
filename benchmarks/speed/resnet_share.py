"""How much of a training step of ResNet-50 is the loss? `python -m benchmarks.speed.resnet_share`.

The loss takes a whole batch of 512 numbers an image, forward and backward. The network takes 8 images of 224 x 224
pixels, forward and backward, and its time is multiplied to a whole batch: it works on each image by itself, and a whole
batch would need more memory than most machines have. Both by the CPU time of one process on one thread, so that other
programs matter less; the least of a few rounds.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable

import torch

from rankwise.losses import EmbeddingLoss, create_loss
from rankwise.models import ResNetEmbedder

IMAGES, DIMENSIONS, PER_CLASS = 8, 512, 4


def seconds(work: Callable[[], object], rounds: int) -> float:
    """The least CPU time of a few rounds, after one that does not count."""
    work()
    times = []
    for _ in range(rounds):
        started = time.process_time()
        work()
        times.append(time.process_time() - started)
    return min(times)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.speed.resnet_share")
    parser.add_argument("--rounds", type=int, default=3)
    given = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    model, images = ResNetEmbedder(50, DIMENSIONS), torch.rand(IMAGES, 3, 224, 224)
    network = seconds(lambda: model(images).sum().backward(), given.rounds) / IMAGES
    print("| loss | batch | loss ms | step ms | share |\n|---|--:|--:|--:|--:|")
    for name in ("soprc", "stable-ap", "smooth-ap", "multi-similarity"):
        made = create_loss(name)
        loss = made if name == "multi-similarity" else EmbeddingLoss(made)
        for batch in (112, 224):
            vectors = torch.randn(batch, DIMENSIONS, requires_grad=True)
            labels = torch.arange(batch) // PER_CLASS
            spent = seconds(lambda: loss(vectors, labels).backward(), 10 * given.rounds)  # noqa: B023
            step = spent + network * batch
            print(f"| {name} | {batch} | {1000 * spent:.1f} | {1000 * step:.0f} | {spent / step:.2%} |")


if __name__ == "__main__":
    main()
