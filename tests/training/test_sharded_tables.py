"""Tables of users and items sharded by rows: the training of one process, with a share of the rows in each."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from pydantic import ValidationError
from safetensors.torch import load_file

import rankwise as rw
from rankwise.problems import Recommendation, Tabular
from workers.processes import rank_environments, run_ranks
from workers.sharded_tables import (
    ITEMS,
    STEPS,
    USERS,
    fit_tables,
    go_on_with_tables,
    pairs,
    problem,
    score_with_tables,
    train_tables,
)

pytestmark = pytest.mark.filterwarnings("ignore")


def train_over(folder, worlds, **options):
    """Train a part of the steps on each number of ranks, one after the other; return the end."""
    folder.mkdir()
    for number, world in enumerate(worlds, start=1):
        until = STEPS * number // len(worlds)
        if world == 1:
            fit_tables(folder, 1, until, options)
        else:
            run_ranks(go_on_with_tables, world, rank_environments(world), str(folder), until, options)
    return torch.load(folder / "end.pt", weights_only=True)


def assert_same_training(found, alone, close):
    for name, value in alone["weights"].items():
        torch.testing.assert_close(found["weights"][name], value, rtol=close, atol=close)
    for ours, theirs in zip(found["metrics"], alone["metrics"], strict=True):
        assert ours == pytest.approx(theirs, abs=max(close, 1e-9))


@pytest.mark.parametrize("world", [2, 3])
def test_scores_and_gradients_are_those_of_whole_tables(world):
    run_ranks(score_with_tables, world, rank_environments(world))


@pytest.mark.parametrize("precision, close", [("64", 1e-9), ("32", 1e-5)])
def test_ranks_with_a_share_of_the_rows_train_as_one_process(tmp_path, precision, close):
    alone = train_over(tmp_path / "one", (1,), precision=precision)
    assert alone["rows"] == {}
    end = train_over(tmp_path / "four", (4,), precision=precision)
    assert_same_training(end, alone, close)
    most = {"model.users.weight": -(-USERS // 4), "model.items.weight": -(-ITEMS // 4), "model.bias": -(-ITEMS // 4)}
    assert end["rows"] == most


@pytest.mark.parametrize(
    "options",
    [
        {"batches": {"users": 9}},
        {"optimiser": {"name": "sgd", "learning_rate": 0.1}, "gradient": {"clip": 0.01, "accumulate": 2}},
        {"average": {"after": 0.3}, "loss": "bpr"},
    ],
    ids=["all-items", "clipped", "averaged"],
)
def test_other_options_train_as_one_process(tmp_path, options):
    assert_same_training(
        train_over(tmp_path / "two", (2,), **options), train_over(tmp_path / "one", (1,), **options), 1e-9
    )


def test_ranks_go_on_from_the_tables_of_other_ranks(tmp_path):
    alone = train_over(tmp_path / "one", (1,))
    assert_same_training(train_over(tmp_path / "many", (4, 2, 1, 3)), alone, 1e-9)


def test_the_same_ranks_go_on_bit_for_bit_and_no_file_holds_a_whole_table(tmp_path):
    straight, again = train_over(tmp_path / "straight", (2,)), train_over(tmp_path / "again", (2, 2))
    for name, value in straight["weights"].items():
        assert torch.equal(again["weights"][name], value)
    plain = torch.load(max((tmp_path / "again").glob("step-*.pt")), weights_only=True)
    assert plain["model"] == {}
    shares = list((tmp_path / "again" / plain["shards"]["folder"]).iterdir())
    tables = [load_file(share) for share in shares]
    for name in ("model/model.items.weight", "optimiser/state/2/exp_avg"):
        assert sorted(len(table[name]) for table in tables) == [ITEMS // 2, -(-ITEMS // 2)]


def test_a_run_of_several_ranks_predicts_and_recommends_as_one_of_one_process(tmp_path):
    alone = rw.train(problem(1, refit=True), train=pairs(), out=tmp_path / "one")
    run_ranks(train_tables, 2, rank_environments(2), str(tmp_path / "two"))
    run = rw.load_run(tmp_path / "two")
    for name, value in alone.model.state_dict().items():
        torch.testing.assert_close(run.model.state_dict()[name].double(), value, rtol=0, atol=1e-6)
    asked = ["u3", "u11"]
    ours, theirs = (each.recommend(asked, k=5) for each in (run, rw.load_run(tmp_path / "one")))
    assert np.array_equal(ours.items, theirs.items)
    written, expected = ((tmp_path / each / "test-queries.csv").read_text() for each in ("two", "one"))
    assert written == expected
    assert (tmp_path / "two" / "report.html").is_file()
    assert not list((tmp_path / "two").glob("*.part"))


def test_a_run_that_is_not_over_has_the_weights_of_all_ranks(tmp_path):
    run_ranks(train_tables, 2, rank_environments(2), str(tmp_path / "run"))
    whole = rw.load_run(tmp_path / "run").model.state_dict()
    for name in ("model.safetensors", "test.json"):
        (tmp_path / "run" / name).unlink()
    record = tmp_path / "run" / "run.json"
    record.write_text(record.read_text().replace('"settings"', '"other"'))
    weights = rw.load_run(tmp_path / "run").model.state_dict()
    assert weights.keys() == whole.keys()
    assert all(weights[name].shape == value.shape for name, value in whole.items())


@pytest.mark.parametrize(
    "kind, options, said",
    [
        (Tabular, {}, "only recsys with model.name=matrix-factorisation has them"),
        (Recommendation, {"model": {"name": "neumf"}}, "only recsys with model.name=matrix-factorisation has them"),
        (
            Recommendation,
            {"model": {"name": "matrix-factorisation"}, "gradient": {"rows_at_once": 8}},
            "no rows_at_once",
        ),
    ],
)
def test_what_cannot_be_sharded_is_refused(kind, options, said):
    with pytest.raises(ValidationError, match=said):
        kind(device={"tables": "sharded"}, **options)
    with pytest.raises(ValidationError, match="expected compile: false"):
        kind(device={"tables": "sharded", "compile": True}, **options)


def test_a_run_in_memory_is_refused():
    with pytest.raises(ValueError, match=r"out: expected a folder with device\.tables=sharded"):
        rw.train(problem(1), train=pairs())
