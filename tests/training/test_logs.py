"""The logs of a run, read back by the programs they are written for."""

from __future__ import annotations

import polars
import pytest

from rankwise.training.history import CSVLog, Step, TensorBoardLog


def write(log, first, last, loss):
    for number in range(first, last + 1):
        log.step(Step(number, loss(number), 0.5, 8))
    log.evaluation(last, {"ap": last / 100})


def curve(folder, name):
    event_accumulator = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    events = event_accumulator.EventAccumulator(str(folder)).Reload()
    return [(event.step, round(event.value, 4)) for event in events.Scalars(name)]


def test_tensorboard_shows_loss_rate_and_metrics(tmp_path):
    write(TensorBoardLog(tmp_path), 1, 4, lambda step: step / 10)
    assert curve(tmp_path, "loss") == [(1, 0.1), (2, 0.2), (3, 0.3), (4, 0.4)]
    assert curve(tmp_path, "learning_rate") == [(step, 0.5) for step in range(1, 5)]
    assert curve(tmp_path, "validation/ap") == [(4, 0.04)]


def test_tensorboard_forgets_the_steps_that_are_done_again(tmp_path):
    write(TensorBoardLog(tmp_path), 1, 6, lambda step: 1.0)
    write(TensorBoardLog(tmp_path, start=3), 4, 8, lambda step: 2.0)
    assert curve(tmp_path, "loss") == [(step, 1.0 if step <= 3 else 2.0) for step in range(1, 9)]


def test_the_table_forgets_the_steps_that_are_done_again(tmp_path):
    path = tmp_path / "log.csv"
    write(CSVLog(path, ["ap"], every=2), 1, 6, lambda step: 1.0)
    write(CSVLog(path, ["ap"], losses=[1.0] * 3, every=2), 4, 8, lambda step: 2.0)
    table = polars.read_csv(path)
    assert table.filter(polars.col("loss").is_not_null()).select("step", "loss").rows() == [
        (2, 1.0),
        (4, 1.5),
        (6, 2.0),
        (8, 2.0),
    ]
    assert table.filter(polars.col("ap").is_not_null())["step"].to_list() == [8]
