"""The tabular benchmark: networks side by side train as if alone, folds do not leak, results survive interruption."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from benchmarks.quality.tabular import __main__ as program
from benchmarks.quality.tabular import contenders, tables
from benchmarks.quality.tabular.contenders import NEURAL, Found, Neural
from benchmarks.quality.tabular.ensemble import Ensemble, Member, draw_batches, train_ensemble
from benchmarks.quality.tabular.results import BOOSTING, Row, Rows
from rankwise.training import Budget, OptimiserOptions, ScheduleOptions

# Not Adam: it turns the rounding errors of gradients that should be 0 (a shift of all scores) into full steps.
PLAIN = {
    "budget": Budget(steps=5),
    "optimiser": OptimiserOptions(name="sgd", learning_rate=0.3, momentum=0.0),
    "schedule": ScheduleOptions(name="constant"),
}


def table(rows=400, seed=0):
    random = np.random.default_rng(seed)
    features = random.normal(size=(rows, 3))
    return features, (features[:, 0] + 0.5 * random.normal(size=rows) > 1.4).astype(np.int64)


def test_folds_are_disjoint_and_together_complete():
    features, labels = np.arange(400.0)[:, None], table()[1]
    tested = []
    for fold in range(tables.FOLDS):
        split = tables.cut((features, labels), fold)
        parts = (split.train, split.validation, split.test)
        # The one feature rises from row to row, whatever its scale: its order tells which row it is.
        rows = torch.cat([part.features[:, 0] for part in parts]).argsort().argsort()
        assert len(rows.unique()) == 400
        assert all(int(part.labels.sum()) > 0 for part in parts)
        tested += rows[-len(split.test) :].tolist()
    assert sorted(tested) == list(range(400))


@pytest.mark.parametrize("neural", NEURAL, ids=lambda neural: neural.loss)
def test_side_by_side_equals_alone(neural):
    splits = [(seed, tables.cut(table(), fold)) for seed, fold in ((0, 0), (3, 1), (5, 2))]
    together = replace(neural.ensemble(splits, 5, neural.settings[-1]), **PLAIN)
    run = train_ensemble(together)
    for index in range(len(splits)):
        alone = Ensemble([together.members[index]], together.loss, together.loss_options, **PLAIN)
        single = train_ensemble(alone)
        for left, right in zip(run.model.parameters(), single.model.parameters(), strict=True):
            torch.testing.assert_close(left[index], right[0], rtol=1e-4, atol=1e-5)
        value = together.evaluate(run.model, "test").means[str(index)]
        assert value == pytest.approx(alone.evaluate(single.model, "test").means["ap"], abs=1e-3)


@pytest.mark.parametrize("positives", [None, 4])
def test_batches_are_as_promised(positives):
    labels = torch.as_tensor(table()[1])
    drawn = draw_batches(labels, size=32, positives=positives, steps=30, seed=0)
    assert drawn.shape == (30, 32)
    assert all(len(batch.unique()) == 32 for batch in drawn)
    if positives is None:
        assert len(drawn[:12].unique()) == 384
    else:
        assert set(labels[drawn].sum(1).tolist()) == {4}


def test_rows_survive_and_are_not_run_again(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(program, "TABLES", {"small": table})
    monkeypatch.setattr(tables, "TABLES", {"small": table})
    monkeypatch.setattr(program, "NEURAL", NEURAL[:1])
    asked = []

    def shorter(neural, splits, on_step):
        asked.append(neural.loss)
        return contenders.run(neural, splits, on_step, curve=(2, 4, 6, 8))

    monkeypatch.setattr(program, "run", shorter)
    monkeypatch.setattr("sys.argv", ["tabular", "--tables", "small", "--folder", str(tmp_path)])
    program.main()
    first = (tmp_path / "tabular.csv").read_text()
    assert len(first.splitlines()) == 1 + 15 + 5
    program.main()
    assert asked == ["cross-entropy"]
    assert (tmp_path / "tabular.csv").read_text() == first
    said = capsys.readouterr().out
    assert "Difference from cross entropy" in said
    assert "Unfinished" not in said
    assert (tmp_path / "tabular.md").read_text() in said


def test_differences_are_taken_fold_by_fold(tmp_path):
    rows = Rows(tmp_path / "rows.csv")
    for loss, gain in (("cross-entropy", 0.0), ("soprc", 0.1), (BOOSTING, 0.0)):
        seeds = range(1 if loss == BOOSTING else 2)
        rows.add(
            [
                Row(
                    "t",
                    loss,
                    fold,
                    seed,
                    Found(0.1, "", 0.5, round(0.1 * fold + 0.01 * seed + gain, 6), (0.1, 0.2, 0.3, 0.4)),
                )
                for fold in range(5)
                for seed in seeds
            ]
        )
    again = Rows(rows.path)
    assert again.rows == rows.rows
    assert again.per_fold("t", "soprc") == pytest.approx([0.105 + 0.1 * fold for fold in range(5)])
    from benchmarks.quality.tabular.results import tables as written

    text = written(again, ["t"])
    assert "| soprc | +0.100 [+0.100, +0.100] |" in text
    assert "| soprc | **0.305** [" in text
    assert "on 1 of 1 tables: t." in text


def test_choices_are_made_on_validation():
    split = tables.cut(table(), 0)

    def run(*rates):
        return contenders.run(Neural("soprc", rates=rates), [(0, split)], lambda: None, curve=(10, 20))[0]

    assert run(1e-9, 1e-2) == max(run(1e-9), run(1e-2), key=lambda each: each.validation)


def test_member_is_what_it_says():
    member = Member(0, tables.cut(table(), 0), torch.zeros(1, 4, dtype=torch.int64))
    assert Ensemble([member], "soprc").build_loss(None, "train", steps=1).reduction == "sum"
