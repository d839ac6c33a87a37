"""`python -m benchmarks.quality.cranfield.rerankers --encoder FOLDER`: seconds of a step of a cross-encoder.

A list of the first documents of Cranfield for one query, MiniLM as a `CrossEncoder`, forward and backward, CPU seconds
on one thread: with LambdaLoss of sentence-transformers and with `CrossEncoderListLoss`. Of the time of the losses
themselves see `python -m benchmarks.speed --rows text-lists`. Prints a Markdown table and saves it beside this file.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from sentence_transformers.cross_encoder import CrossEncoder
from sentence_transformers.cross_encoder.losses import LambdaLoss

from benchmarks.quality.cranfield.data import load
from rankwise.text import CrossEncoderListLoss

LENGTHS = (20, 100)
LOSSES: dict[str, Callable[[Any], Any]] = {
    "LambdaLoss": lambda model: LambdaLoss(model, mini_batch_size=32),
    "CrossEncoderListLoss, NDCG": lambda model: CrossEncoderListLoss(model, "ndcg", chunk=32),
}


def seconds(loss: Any, inputs: list[Any], labels: list[torch.Tensor]) -> float:
    """Return the CPU seconds of a step without the optimiser."""
    begin = time.process_time()
    loss(inputs, labels).backward()
    return time.process_time() - begin


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--encoder", required=True, help="a model, by name or folder")
    parser.add_argument("--out", type=Path, default=Path(__file__).with_suffix(".md"))
    options = parser.parse_args()
    torch.set_num_threads(1)
    texts = load()
    query, documents = next(iter(texts.queries.values())), list(texts.corpus.values())
    model = CrossEncoder(options.encoder, num_labels=1, max_length=256, device="cpu").train()
    lines = ["| documents in the list | " + " | ".join(LOSSES) + " |", "|--:|" + "--:|" * len(LOSSES)]
    for length in LENGTHS:
        labels = [torch.tensor([4, 2, 1] + [0] * (length - 3))]
        taken = [seconds(build(model), [[query], [documents[:length]]], labels) for build in LOSSES.values()]
        lines.append(f"| {length} | " + " | ".join(f"{each:.1f} s" for each in taken) + " |")
        print(lines[-1], flush=True)
    options.out.write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
