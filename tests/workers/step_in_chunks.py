"""One step of a deep model on 16,384 rows, so many at a time (0: all at once): prints its peak memory in MiB."""

import ctypes
import re
from pathlib import Path

import torch
from torch import nn

from rankwise.losses import AUPRCLoss
from rankwise.models import InChunks


def kib(name):
    return int(re.search(rf"{name}:\s+(\d+) kB", Path("/proc/self/status").read_text())[1])


M_MMAP_THRESHOLD = -3  # of glibc's malloc.h


def step_in_chunks(rows):
    # Return each tensor to the system when it is freed: how much of its heap malloc keeps depends on its version.
    ctypes.CDLL(None).mallopt(M_MMAP_THRESHOLD, 2**16)
    torch.manual_seed(0)
    layers = [part for _ in range(3) for part in (nn.Linear(256, 256), nn.Tanh())]
    model = nn.Sequential(nn.Linear(16, 256), *layers, nn.Linear(256, 1))
    loss, features, labels = AUPRCLoss(), torch.randn(16_384, 16), (torch.arange(16_384) % 50 == 0).long()

    def step(some):
        outputs = (InChunks(model, rows) if rows else model)(features[:some])
        loss(outputs[:, 0], labels[:some]).backward()

    step(1024)  # more than a chunk, so that all is imported that chunks need
    Path("/proc/self/clear_refs").write_text("5")
    before = kib("VmRSS")
    step(16_384)
    print((kib("VmHWM") - before) / 1024)
    return 0
