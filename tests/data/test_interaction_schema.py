"""The schema of interactions: other sources are read by name, and what differs has a stated treatment."""

from __future__ import annotations

import json
import warnings
from dataclasses import replace

import numpy as np
import pandas as pd
import polars as pl
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from rankwise.data import (
    DataNote,
    Interactions,
    InteractionSchema,
    cut_histories,
    histories,
    hold_out,
    learn_interactions,
    leave_one_out,
    number_like,
)

CLICKS = "when,who,what\n30,bob,x9\n10,ann,x7\n20,bob,x7\n40,eve,x8\n"


@pytest.fixture
def clicks(tmp_path):
    path = tmp_path / "clicks.csv"
    path.write_text(CLICKS)
    return path


def learned(source, **options):
    pairs, schema = learn_interactions(source, **options)
    return replace(schema, histories=histories(pairs))


@pytest.fixture
def schema(clicks):
    return learned(clicks, user="who", item="what", time="when")


def wanted(part):
    return named(part, part.wanted)


def known(part):
    return named(part, part.known)


def named(part, rows):
    return {
        (part.user_names[row], part.item_names[column])
        for row, column in zip(rows.rows.tolist(), rows.columns.tolist(), strict=True)
    }


def test_what_is_learned(schema):
    assert schema.users == ("ann", "bob", "eve")
    assert schema.items == ("x7", "x8", "x9")
    assert (schema.user, schema.item, schema.columns) == ("who", "what", ("when", "who", "what"))


SAME = {
    "columns in another order": lambda frame: frame.select("what", "when", "who"),
    "further columns": lambda frame: frame.with_columns(stars=pl.lit(5)),
    "without times": lambda frame: frame.select("who", "what"),
    "pandas": lambda frame: pd.DataFrame(frame.to_dict(as_series=False)),
    "rows in another order": lambda frame: frame.sort("when"),
    "a row twice": lambda frame: pl.concat([frame, frame.head(1)]),
}


@pytest.mark.parametrize("form", SAME.values(), ids=SAME)
def test_columns_are_found_by_name(schema, clicks, form):
    part = schema.read(form(pl.read_csv(clicks)), labels="optional")
    assert known(part) == {("bob", "x9"), ("ann", "x7"), ("bob", "x7"), ("eve", "x8")}
    assert [schema.users[user] for user in part.users.tolist()] == list(part.user_names)
    assert part.wanted is None
    with pytest.raises(ValueError, match="expected labels"):
        _ = part.labels


def test_users_come_in_the_order_of_their_first_pair(schema, clicks):
    assert schema.read(clicks, labels="optional").user_names == ("bob", "ann", "eve")


def test_a_table_without_names_is_read_by_position(schema):
    part = schema.read(np.array([["5", "eve", "x7"], ["6", "ann", "x9"]]), labels="optional")
    assert known(part) == {("eve", "x7"), ("ann", "x9")}
    with pytest.raises(ValueError, match=r"expected 3 columns, as in the training data, .* got 2"):
        schema.read(np.array([["eve", "x7"]]))


def test_training_data_without_names_are_read_by_position_or_by_the_usual_names():
    schema = learned(np.array([[7, 1], [9, 1], [9, 2]]), user=1, item=0)
    assert schema.users == ("1", "2")
    assert schema.items == ("7", "9")
    for source in (np.array([[9, 2], [7, 2]]), pl.DataFrame({"item": [9, 7], "user": [2, 2]})):
        assert known(schema.read(source, labels="optional")) == {("2", "9"), ("2", "7")}
    with pytest.raises(ValueError, match="expected columns 'user' and 'item', got no 'user' in 'who', 'item'"):
        schema.read(pl.DataFrame({"who": [2], "item": [7]}))


@pytest.mark.parametrize(
    "frame, message",
    [
        ({"who": ["ann"], "wat": ["x7"]}, "expected columns 'who' and 'what', got no 'what' in 'who', 'wat'"),
        ({"what": ["x7"], "when": [3]}, "expected columns 'who' and 'what', got no 'who' in 'what', 'when'"),
        ({"who": ["ann", None], "what": ["x7", "x8"]}, "column 'who', line 2: expected something in every line"),
    ],
)
@pytest.mark.parametrize("labels", ["required", "optional"])
def test_a_table_that_lacks_something_is_refused(schema, frame, message, labels):
    with pytest.raises(ValueError, match=message):
        schema.read(pl.DataFrame(frame), labels=labels)


def test_pairs_to_be_found_are_judged_with_the_saved_histories(schema):
    part = schema.read(pl.DataFrame({"who": ["bob", "ann", "ann"], "what": ["x8", "x9", "x8"]}))
    assert part.user_names == ("bob", "ann")
    assert known(part) == {("bob", "x9"), ("bob", "x7"), ("ann", "x7")}
    assert wanted(part) == {("bob", "x8"), ("ann", "x9"), ("ann", "x8")}


def test_pairs_that_are_known_are_not_to_be_found(schema):
    source = pl.DataFrame({"who": ["bob", "bob"], "what": ["x8", "x7"]})
    with pytest.warns(DataNote, match="left out 1 of 2 pairs, because the user is already known to have chosen"):
        part = schema.read(source)
    assert wanted(part) == {("bob", "x8")}


@pytest.mark.parametrize("labels", ["required", "optional"])
def test_unknown_items_are_left_out_with_a_note(schema, labels):
    source = pl.DataFrame({"who": ["ann", "ann", "bob"], "what": ["x9", "new", "new"]})
    with pytest.warns(
        DataNote, match="left out 2 of 3 pairs, of 1 items that the training data did not have, such as 'new'"
    ):
        part = schema.read(source, labels=labels)
    assert part.user_names == ("ann", "bob")
    assert (wanted(part) if labels == "required" else known(part)) == {("ann", "x9")}


@pytest.mark.parametrize("labels", ["required", "optional"])
def test_unknown_users_are_new_users(schema, labels):
    source = pl.DataFrame({"who": ["joe", "ann"], "what": ["x9", "x8"]})
    with pytest.warns(DataNote, match="1 of 2 users are not in the training data, such as 'joe'"):
        part = schema.read(source, labels=labels)
    assert part.users.tolist() == [-1, 0]
    assert known(part) == ({("ann", "x7")} if labels == "required" else {("joe", "x9"), ("ann", "x8")})


def test_users_alone_have_the_saved_histories(schema):
    for source in (pl.DataFrame({"who": ["eve", "bob"]}), np.array([["eve"], ["bob"]])):
        part = schema.read(source, labels="optional")
        assert part.user_names == ("eve", "bob")
        assert known(part) == {("eve", "x8"), ("bob", "x9"), ("bob", "x7")}
        with pytest.raises(ValueError, match="expected a column of items, to evaluate, got none"):
            schema.read(source)


def test_without_histories_only_given_ones_are_known(clicks):
    schema = learn_interactions(clicks, user="who", item="what").schema
    assert schema.tensors() == {}
    assert len(schema.read(clicks, labels="optional")) == 3
    with pytest.raises(ValueError, match="expected a run that keeps the histories of its users"):
        schema.read(clicks)


def test_a_saved_schema_is_the_same(schema):
    again = InteractionSchema.from_saved(json.loads(json.dumps(schema.to_json())), schema.tensors())
    assert again == schema
    assert torch.equal(again.histories.dense(), schema.histories.dense())


@pytest.mark.parametrize(
    "starts, items",
    [([0, 1], [0]), ([0, 1, 2, 5], [0, 1, 2, 0]), ([0, 1, 2, 3], [0, 1, 7]), ([0, 2, 1, 3], [0, 1, 2]), ([], [])],
)
def test_damaged_histories_are_refused(schema, starts, items):
    tensors = {"starts": torch.tensor(starts, dtype=torch.int64), "items": torch.tensor(items, dtype=torch.int32)}
    with pytest.raises(ValueError, match="expected histories of 3 users, got others"):
        InteractionSchema.from_saved(schema.to_json(), tensors)


def interactions(rows):
    users, items, times = map(torch.tensor, zip(*rows, strict=True))
    return Interactions(users, items, None, times, tuple("abcdef"), tuple("rstuvwxyz"))


pairs = st.lists(st.tuples(st.integers(0, 5), st.integers(0, 8), st.integers(0, 4)), min_size=1, max_size=60)


@given(pairs, st.sampled_from(["time", "random", "share"]), st.integers(0, 3))
def test_no_pair_is_both_known_and_wanted(rows, by, seed):
    """Repeated pairs count once: the held-out item of a user was masked as known before, and its metric NaN."""
    seen = interactions(rows)
    repeats = len(rows) - len({row[:2] for row in rows})
    with warnings.catch_warnings(record=True) as notes:
        warnings.simplefilter("always")
        if by == "share":
            train, held = hold_out(seen, share=0.5, seed=seed)
            parts = [train, held]
        else:
            split = leave_one_out(seen, by=by, seed=seed)
            parts = [split.train, split.validation, split.test]
    assert [str(note.message)[: 14 + len(str(repeats))] for note in notes] == [f"interactions: {repeats}"] * bool(
        repeats
    )
    together = [pair for part in parts for pair in zip(part.users.tolist(), part.items.tolist(), strict=True)]
    assert sorted(together) == sorted({row[:2] for row in rows})
    if by == "time":
        cut = cut_histories(split)
        last = {}
        for row, (user, item, time) in enumerate(rows):
            last[user, item] = (time, row)
        for user in range(6):
            own = sorted((when, item) for (who, item), when in last.items() if who == user)
            rest = cut.test.wanted.dense()[user].nonzero().squeeze(1).tolist()
            assert rest == ([own[-1][1]] if len(own) >= 3 else [])
            assert not (cut.test.known.dense()[user] * cut.test.wanted.dense()[user]).any()


def test_the_last_of_repeated_pairs_counts():
    with pytest.warns(DataNote, match="2 of 5 pairs of a user and an item are repeated; each pair counts once"):
        split = leave_one_out(interactions([(0, 0, 9), (0, 1, 3), (0, 2, 2), (0, 0, 1), (0, 1, 4)]), by="time")
    assert split.test.items.tolist() == [0]
    assert split.validation.items.tolist() == [1]
    assert split.train.items.tolist() == [2]


def test_parts_with_other_users_or_items_are_refused():
    first = interactions([(0, 0, 0), (0, 1, 1), (0, 2, 2)])
    split = leave_one_out(first, by="time")
    other = number_like(split.test, ("z",), first.item_names)
    with pytest.raises(ValueError, match="test: expected the users and items of the training part"):
        cut_histories(type(split)(split.train, split.validation, other))
    grown = number_like(split.test, first.user_names, first.item_names)
    assert len(cut_histories(type(split)(split.train, split.validation, grown)).test) == 6
