"""The comparison on MQ2008: ranks within a query, and a page over all folds."""

from __future__ import annotations

import pytest
import torch

from benchmarks.quality.grid.plan import Key, Method, Plan
from benchmarks.quality.grid.results import Results
from benchmarks.quality.mq2008.data import join_validation, read_folds, with_ranks
from benchmarks.quality.mq2008.table import write_folds
from rankwise.data import Part, Split

PLAN = Plan(
    "About.",
    scorers=("fold 1", "fold 2"),
    methods=(Method("ours", "song", ours=True), Method("rival", "listnet"), Method("half", "listmle")),
    settings=((0.1, 0.0), (0.2, 0.0)),
    seeds=(0, 1),
    metrics=("ndcg@5", "ndcg@10"),
    run=lambda key, method: ({}, None),
)


def test_ranks_are_those_within_the_query():
    features = torch.tensor([[5.0, 1.0], [7.0, 1.0], [6.0, 3.0], [0.0, 9.0], [2.0, 8.0]])
    part = Part(features, torch.arange(5), torch.tensor([4, 4, 4, 1, 1]))
    found = with_ranks(Split(part, part, part)).train
    assert torch.equal(found.features[:, :2], features)
    expected = torch.tensor([[-2, -1], [2, -1], [0, 2], [-1.5, 1.5], [1.5, -1.5]]) / 3
    torch.testing.assert_close(found.features[:, 2:], expected)
    assert torch.equal(found.labels, part.labels)


def test_the_validation_section_is_learned_from_as_well():
    parts = [Part(torch.full((2, 1), float(at)), torch.zeros(2).long(), torch.full((2,), at)) for at in range(3)]
    joined = join_validation(Split(*parts))
    assert joined.train.features[:, 0].tolist() == [0, 0, 1, 1]
    assert joined.test is parts[2]


def test_five_files_make_the_official_folds(tmp_path):
    for number in range(1, 6):
        (tmp_path / f"S{number}.txt").write_text(f"1 qid:{number} 1:2\n")
    folds = [
        [split.part(name).query_ids.tolist() for name in ("train", "validation", "test")]
        for split in read_folds(tmp_path)
    ]
    assert folds == [
        [[1, 2, 3], [4], [5]],
        [[2, 3, 4], [5], [1]],
        [[3, 4, 5], [1], [2]],
        [[4, 5, 1], [2], [3]],
        [[5, 1, 2], [3], [4]],
    ]


@pytest.mark.realdata
def test_the_real_folds_have_their_size(real_data):
    for split in read_folds(real_data("letor-mq2008")):
        parts = [split.part(name) for name in ("train", "validation", "test")]
        assert sum(map(len, parts)) == 15_211
        assert sum(len(part.query_ids.unique()) for part in parts) == 784
        assert {part.features.shape[1] for part in parts} == {46}
        assert torch.cat([part.labels for part in parts]).unique().tolist() == [0, 1, 2]


@pytest.fixture
def page(tmp_path):
    """Ours is best with one setting in each fold; a third method lacks a fold."""
    results = Results(tmp_path / "results.csv", tmp_path, PLAN.metrics)
    for place, fold in enumerate(PLAN.scorers):
        for method, value in (("ours", 0.6), ("rival", 0.5), ("half", 0.4)):
            if method == "half" and place:
                continue
            for rate, _ in PLAN.settings:
                better = 0.02 if (rate == 0.1) == (place == 0) else 0.0
                key = Key(fold, method, rate, 0.0, 0, "train")
                results.add(key, {"train": 0.9, "seconds": 1.0, "validation": value + better}, None)
            for seed in PLAN.seeds:
                lists = torch.linspace(-0.1, 0.1, 31) + value + 0.1 * place + 0.01 * seed
                figures = {"train": 0.8, "seconds": 1.0, "ndcg@5": lists.mean().item(), "ndcg@10": 0.7}
                lists[3] = float("nan")
                results.add(Key(fold, method, 0.2 if place else 0.1, 0.0, seed, "all"), figures, lists)
    return write_folds(PLAN, results)


def test_every_fold_has_its_own_setting_and_the_row_is_the_mean(page):
    row = next(line for line in page.splitlines() if line.startswith("| ours"))
    cells = [cell.strip() for cell in row.split("|")[1:-1]]
    # (.6 + .61 + .7 + .71) / 4.
    assert cells[1] == "0.6550"
    assert cells[3:] == ["2: 0.6500 to 0.6600", "0.7000", "0.6200", "0.8000", "2", "1 x 0.1, 0; 1 x 0.2, 0"]
    low, high = map(float, cells[2].split(" to "))
    assert 0.62 < low < 0.6575 < high < 0.69


def test_differences_are_paired_and_unfinished_rows_are_left_out(page):
    assert "| rival | +0.1000 | +0.1000 to +0.1000 |" in page
    assert "half" not in page
