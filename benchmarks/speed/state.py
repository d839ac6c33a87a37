"""How much memory the state of the losses takes per million ids: python -m benchmarks.speed.state"""

from __future__ import annotations

import io

import torch
from torch import nn

from rankwise.estimators import IdTable

MILLION = 1_000_000
# What a loss keeps, numbers per id, columns of the id.
KEPT = (
    ("SOPRC: 100 quantiles per group", 100, 1),
    ("stable AP: one mean per group", 1, 1),
    ("SONG, SOLC: one average per (query, item) pair", 1, 2),
)


def measure(width: int, columns: int) -> tuple[float, float]:
    """MiB in memory (buffers, with room to grow, and the index) and in a checkpoint, for a million ids."""
    table = IdTable(width, columns)
    ids = torch.arange(MILLION)
    for block in ids.split(50_000):
        key = block if columns == 1 else torch.stack([block % 1000, block], 1)
        table.update(key, torch.zeros(len(block), width), update_rate=0.1)
    saved = io.BytesIO()
    torch.save(table.state_dict(), saved)
    return _bytes(table) / 2**20, saved.tell() / 2**20


def _bytes(module: nn.Module) -> int:
    index = getattr(module, "_index", None)
    tensors = [*module.buffers(), *(t for t in vars(index).values() if isinstance(t, torch.Tensor))] if index else []
    # By storage: some are views of others.
    storages = {t.untyped_storage().data_ptr(): t.untyped_storage().nbytes() for t in tensors or module.buffers()}
    return sum(storages.values())


if __name__ == "__main__":
    print(f"{'kept by the loss, a million ids':<50}  memory MiB  checkpoint MiB")
    for name, width, columns in KEPT:
        memory, saved = measure(width, columns)
        print(f"{name:<50}  {memory:10.0f}  {saved:14.0f}")
