"""Training interrupted, saved to a file, loaded and continued ends where uninterrupted training does, bit for bit."""

from __future__ import annotations

import pytest
import torch

pytest.importorskip("lightning_fabric")

from rankwise.losses import (
    AUPRCLoss,
    ListStatistics,
    ListwiseCELoss,
    NDCGLoss,
    PriorSchedule,
    SemiVarianceLoss,
    StableAPLoss,
    SumLoss,
    SwitchLoss,
    TopKNDCGLoss,
)
from rankwise.samplers import BinaryBatchSampler, QueryBatchSampler
from rankwise.training import PreviousWeights

FEATURES = torch.randn(90, 5, generator=torch.Generator().manual_seed(0))
LABELS = (torch.arange(90) % 9 == 0).long()


LOSSES = {
    "soprc": lambda: SumLoss(AUPRCLoss(PriorSchedule(0.5, 0.1, steps=9)), SemiVarianceLoss(3, 15)),
    "stable AP": StableAPLoss,
}


class Training:
    def __init__(self, loss):
        torch.manual_seed(0)
        self.model = torch.nn.Linear(5, 1)
        self.loss = LOSSES[loss]()
        self.optimiser = torch.optim.AdamW(self.model.parameters(), lr=0.1)
        self.sampler = BinaryBatchSampler(LABELS, positives=3, negatives=9, seed=1)
        self.previous = PreviousWeights(self.model, self.optimiser)
        self.parts = {name: getattr(self, name) for name in ("model", "loss", "optimiser", "sampler", "previous")}

    def value(self, batch):
        # Scores far beyond [-1, 1], so that the running spread has something to remember.
        before = 30 * self.previous(FEATURES[batch])[:, 0]
        return self.loss(30 * self.model(FEATURES[batch])[:, 0], LABELS[batch], previous_scores=before)

    def run(self, steps):
        done = 0
        while True:
            for batch in self.sampler:
                value = self.value(batch)
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


@pytest.mark.parametrize("loss", LOSSES)
def test_resumed_equals_uninterrupted_at_every_step(loss, tmp_path):
    straight = Training(loss).run(16)
    for cut in range(1, 16, 3):
        Training(loss).run(cut).save(tmp_path / "state.pt")
        resumed = Training(loss).load(tmp_path / "state.pt").run(16 - cut)
        assert_same(straight, resumed, cut)


def assert_same(straight, resumed, cut):
    for name in ("model", "loss"):
        left, right = straight.parts[name].state_dict(), resumed.parts[name].state_dict()
        assert left.keys() == right.keys()
        for key, tensor in left.items():
            assert torch.equal(tensor, right[key]), (cut, name, key)


QUERIES = torch.arange(90) // 15
GRADES = torch.arange(90) % 4 * (torch.arange(90) % 3 == 0)
STATISTICS = ListStatistics(GRADES, QUERIES)
RANKING = {
    "SONG": lambda: NDCGLoss(STATISTICS, update_rate=0.3),
    "K-SONG stopped": lambda: TopKNDCGLoss(4, STATISTICS),
    "K-SONG full": lambda: TopKNDCGLoss(4, STATISTICS, selector_gradient="full"),
    "SOLC then SONG": lambda: SwitchLoss(ListwiseCELoss(STATISTICS), NDCGLoss(STATISTICS), after=7),
}


class RankingTraining(Training):
    def __init__(self, loss):
        torch.manual_seed(0)
        self.model = torch.nn.Linear(5, 1)
        self.loss = loss()
        self.optimiser = torch.optim.AdamW(self.model.parameters(), lr=0.1)
        self.sampler = QueryBatchSampler(GRADES, QUERIES, queries=4, relevant=2, irrelevant=4, seed=1)
        self.parts = {name: getattr(self, name) for name in ("model", "loss", "optimiser", "sampler")}

    def value(self, batch):
        scores = self.model(FEATURES[batch])[:, 0]
        return self.loss(scores, GRADES[batch], query_ids=QUERIES[batch], sample_ids=torch.tensor(batch))


@pytest.mark.parametrize("name", RANKING)
def test_resumed_ranking_equals_uninterrupted(name, tmp_path):
    straight = RankingTraining(RANKING[name]).run(14)
    for cut in (1, 6, 7, 8, 11):
        RankingTraining(RANKING[name]).run(cut).save(tmp_path / "state.pt")
        resumed = RankingTraining(RANKING[name]).load(tmp_path / "state.pt").run(14 - cut)
        assert_same(straight, resumed, cut)
