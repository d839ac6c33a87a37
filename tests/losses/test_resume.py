"""Training interrupted, saved to a file, loaded and continued ends where uninterrupted training does, bit for bit."""

from __future__ import annotations

import torch

from rankwise.losses import AUPRCLoss, Combined, PriorSchedule, SemiVariance
from rankwise.samplers import BinaryBatchSampler

FEATURES = torch.randn(90, 5, generator=torch.Generator().manual_seed(0))
LABELS = (torch.arange(90) % 9 == 0).long()


class Training:
    def __init__(self):
        torch.manual_seed(0)
        self.model = torch.nn.Linear(5, 1)
        self.loss = Combined(AUPRCLoss(PriorSchedule(0.5, 0.1, steps=9)), SemiVariance(3, 15))
        self.optimiser = torch.optim.AdamW(self.model.parameters(), lr=0.1)
        self.sampler = BinaryBatchSampler(LABELS, positives=3, negatives=9, seed=1)
        self.parts = {name: getattr(self, name) for name in ("model", "loss", "optimiser", "sampler")}

    def run(self, steps):
        done = 0
        while True:
            for batch in self.sampler:
                # Scores far beyond [-1, 1], so that the running spread has something to remember.
                value = self.loss(30 * self.model(FEATURES[batch])[:, 0], LABELS[batch])
                self.optimiser.zero_grad()
                value.backward()
                self.optimiser.step()
                done += 1
                if done == steps:
                    return self

    def save(self, path):
        torch.save({name: part.state_dict() for name, part in self.parts.items()}, path)

    def load(self, path):
        saved = torch.load(path, weights_only=True)
        for name, part in self.parts.items():
            part.load_state_dict(saved[name])
        return self


def test_resumed_equals_uninterrupted_at_every_step(tmp_path):
    straight = Training().run(16)
    for cut in range(1, 16, 3):
        Training().run(cut).save(tmp_path / "state.pt")
        resumed = Training().load(tmp_path / "state.pt").run(16 - cut)
        for name in ("model", "loss"):
            left, right = straight.parts[name].state_dict(), resumed.parts[name].state_dict()
            assert left.keys() == right.keys()
            for key, tensor in left.items():
                assert torch.equal(tensor, right[key]), (cut, name, key)
