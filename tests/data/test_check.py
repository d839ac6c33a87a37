"""`check_parts`: every finding is made when it should be, with the right numbers, and not otherwise."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from rankwise.data import Part, read_table
from rankwise.data import repeats as repeats_module
from rankwise.data.check import check_parts
from rankwise.data.expectations import expected_ap_loss, training_prior
from rankwise.data.repeats import first_equal_row, rows_found_in


def make(rows=200, *, lists=None, seed=0, labels=None) -> Part:
    generator = torch.Generator().manual_seed(seed)
    labels = torch.arange(rows) % 4 // 2 if labels is None else torch.as_tensor(labels)
    query_ids = None if lists is None else torch.arange(rows) * lists // rows
    return Part(torch.rand(rows, 3, generator=generator), labels, query_ids)


def said(*parts, severity=None, **options) -> list[str]:
    names = ("train", "test", "more")
    findings = check_parts(dict(zip(names, parts, strict=False)), **options)
    return [finding.what for finding in findings if severity in (None, finding.severity)]


def test_good_data_give_only_notes():
    for lists in (None, 10):
        train, test = make(lists=lists), make(lists=lists, seed=1)
        if lists:
            test = Part(test.features, test.labels, test.query_ids + 100)
        assert {finding.severity for finding in check_parts({"train": train, "test": test})} == {"note"}


def test_what_is_there_is_counted():
    assert said(make())[:2] == [
        "200 rows, 3 features, one list",
        "labels: 0 (100 rows), 1 (100 rows); 50 % positive",
    ]
    assert said(make(lists=20))[0] == "200 rows, 3 features, 20 lists"
    assert "rows in a list: 10 to 10, median 10" in said(make(lists=20))


ERRORS = {
    "one class": (make(labels=[0] * 200), "all labels are 0"),
    "only positives": (make(labels=[1] * 200), "all labels are 1"),
    "labels below 0": (make(labels=[-1, 1] * 100), "100 labels below 0"),
    "labels not finite": (make(labels=[float("nan"), 1.0] * 100), "100 labels that are not finite"),
    "no list with a positive": (make(lists=5, labels=[0] * 200), "5 of 5 lists without a positive row"),
    "no rows": (Part(torch.zeros(0, 2), torch.zeros(0, dtype=torch.int64)), "no rows"),
}


@pytest.mark.parametrize("part, what", ERRORS.values(), ids=ERRORS)
def test_errors(part, what):
    assert what in said(part, severity="error")


def test_missing_values_are_counted_by_column():
    part = make()
    part.features[3, 1] = float("nan")
    part.features[5, 1] = float("inf")
    assert said(part, severity="error", feature_names=["a", "b", "c"]) == ["2 missing or infinite values in feature b"]


def test_missing_values_may_be_filled_in_by_the_medians_of_the_first_part():
    train, test = make(), make(seed=1)
    train.features[:, 2] = torch.arange(200.0) % 5  # the median is 2
    train.features[7, 0] = test.features[7, 2] = float("nan")
    assert said(train, test, severity="error") == [
        "1 missing or infinite value in feature 1",
        "1 missing or infinite value in feature 3",
    ]
    assert said(train, test, severity="error", fill_missing=True) == []
    test.features[7, :2] = train.features[9, :2] = 0.5
    train.features[9, 2] = 2.0
    assert "1 row (0.5 %) with the features of a row of train" in said(train, test, fill_missing=True)


def test_few_positives():
    labels = [1] * 7 + [0] * 193
    assert said(make(labels=labels), severity="warning") == ["7 positive rows"]


def test_lists_that_teach_nothing():
    labels = torch.arange(200) % 2
    labels[:20] = 0
    labels[20:30] = 1
    warnings = said(make(lists=20, labels=labels), severity="warning")
    assert warnings == [
        "2 of 20 lists without a positive row",
        "1 of 20 lists whose rows all have the same positive label",
    ]


def test_large_grades():
    assert "grades up to 40" in said(make(labels=[0, 40] * 100), severity="warning")


def test_scattered_lists_are_noted():
    part = make()
    scattered = Part(part.features, part.labels, torch.arange(200) % 10)
    assert "rows of a list do not stand together (200 runs for 10 lists)" in said(scattered, severity="note")


def test_constant_and_large_features():
    part = make()
    part.features[:, 0] = 7.0
    part.features[0, 2] = -5e4
    assert said(part, severity="warning") == [
        "the same value in every row: feature 1",
    ]


def test_repeated_rows_and_contradictions():
    part = make()
    part.features[10] = part.features[14] = part.features[18]  # labels 1, 1, 1
    part.features[0] = part.features[2]  # labels 0, 1
    assert said(part, severity="warning") == [
        "5 rows with the same features as another row, 2 of them while their labels differ"
    ]
    # Equal rows of different lists are no repetition.
    apart = Part(part.features, part.labels, torch.arange(200))
    assert not [what for what in said(apart) if "same features" in what]


def test_rows_and_lists_in_two_parts():
    train, test = make(lists=10), make(lists=10, seed=1)
    assert said(train, test, severity="warning") == ["10 of 10 lists with the id of a list of train"]
    test.features[:3] = train.features[7]
    found = said(train, test)
    assert "3 rows (1.5 %) with the features of a row of train" in found
    assert said(train, test, severity="error") == ["10 of 10 lists with the id of a list of train"]


def test_lists_in_two_parts_are_known_by_name():
    """Text queries are numbered in the order of each file: the same number is not the same list."""
    train, test = make(lists=2), make(lists=2, seed=1)
    train, test = (
        Part(part.features, part.labels, part.query_ids, names)
        for part, names in ((train, ("ann", "bob")), (test, ("cid", "ann")))
    )
    assert said(train, test, severity="warning") == ["1 of 2 lists with the id of a list of train"]
    other = Part(test.features, test.labels, test.query_ids, ("cid", "dan"))
    assert said(train, other, severity="warning") == []


def test_parts_that_do_not_fit():
    train = make(lists=10)
    assert said(train, Part(torch.rand(9, 2), torch.arange(9) % 2), severity="error") == [
        "train and test have 3 and 2 features"
    ]
    assert said(train, make(seed=1), severity="error") == ["only one of train and test has lists"]
    assert "labels that train does not have: 2" in said(make(), make(seed=1, labels=[0, 2] * 100))


class TestBatches:
    def test_a_batch_with_more_positives_reads_too_small(self):
        part = make(2000, labels=[1] * 40 + [0] * 1960)
        (what,) = said(part, severity="warning", positives=8, batch_size=64)
        true, read = expected_ap_loss(0.02), expected_ap_loss(0.125)
        assert f"reads {read:.2f} instead of {true:.2f}, {true - read:.2f} too small" in what
        (finding,) = (f for f in check_parts({"d": part}, positives=8, batch_size=64) if f.severity == "warning")
        assert f"AUPRCLoss({training_prior(0.02)})" in finding.advice

    def test_a_batch_like_the_data_is_only_noted(self):
        assert any("0.00 too" in what for what in said(make(), severity="note", positives=32, batch_size=64))

    def test_for_lists_nothing_is_said_about_it(self):
        found = said(make(lists=10), positives=8, batch_size=64)
        assert "batches of positives and negatives are for data of one list" in found

    def test_wrong_batches_are_refused(self):
        with pytest.raises(ValueError, match="positives and batch_size: expected both or none"):
            check_parts({"d": make()}, positives=8)
        with pytest.raises(ValueError, match="positives: expected from 1 to 7"):
            check_parts({"d": make()}, positives=8, batch_size=8)

    @pytest.mark.parametrize("batch_prior", [0.02, 0.1, 0.2])
    def test_the_expected_loss_is_that_of_simulated_scores(self, batch_prior):
        random = np.random.default_rng(0)
        positives = random.normal(1, 1, int(200_000 * batch_prior))
        negatives = np.sort(random.normal(0, 1, 200_000 - len(positives)))
        above = len(negatives) - np.searchsorted(negatives, positives)
        rank = len(positives) - np.searchsorted(np.sort(positives), positives)
        simulated = float(np.mean(above / (above + rank)))
        assert expected_ap_loss(batch_prior) == pytest.approx(simulated, abs=0.01)


def test_no_parts_are_refused():
    with pytest.raises(ValueError, match="parts: expected at least one, got none"):
        check_parts({})


def test_progress_goes_to_1():
    seen: list[float] = []
    check_parts({"a": make(), "b": make(seed=1)}, on_progress=seen.append)
    assert seen == sorted(seen)
    assert seen[-1] == 1.0


tables = st.lists(st.lists(st.sampled_from([0.0, -0.0, 1.0, 0.5]), min_size=2, max_size=2), min_size=1, max_size=30)


@given(tables, tables, st.booleans())
def test_equal_rows_are_found_exactly(rows, others, collide):
    array, other = np.array(rows, dtype=np.float32), np.array(others, dtype=np.float32)
    groups = np.arange(len(rows)) % 2
    with pytest.MonkeyPatch.context() as patch:
        if collide:  # every row the same hash: only the comparison of the rows themselves can tell
            patch.setattr(repeats_module, "_hash", lambda rows, groups: np.zeros(len(rows), dtype=np.uint64))
        first, grouped, found = first_equal_row(array), first_equal_row(array, groups), rows_found_in(array, other)
    keys = [tuple(cell + 0.0 for cell in row) for row in rows]
    if not collide:
        assert first.tolist() == [keys.index(key) for key in keys]
        both = list(zip(keys, groups.tolist(), strict=True))
        assert grouped.tolist() == [both.index(key) for key in both]
        assert [place >= 0 for place in found] == [
            key in {tuple(c + 0.0 for c in row) for row in others} for key in keys
        ]
    for place, earlier in enumerate(first.tolist()):
        assert keys[place] == keys[earlier]
    for place, where in enumerate(found.tolist()):
        assert where < 0 or (array[place] == other[where]).all()


@pytest.mark.realdata
def test_mammography_repeats_as_counted_by_hand(real_data):
    part = read_table(real_data("mammography") / "mammography.csv").part
    rows = [tuple(row) for row in part.features.tolist()]
    times, labels = Counter(rows), {}
    for row, label in zip(rows, part.labels.tolist(), strict=True):
        labels.setdefault(row, set()).add(label)
    repeated = sum(count for count in times.values() if count > 1)
    differing = sum(count for row, count in times.items() if len(labels[row]) > 1)
    expected = (
        f"{repeated:,} rows with the same features as another row, {differing:,} of them while their labels differ"
    )
    assert expected in said(part, severity="warning")


@pytest.mark.parametrize("share", [0.0005, 0.019, 0.02, 0.09, 0.1, 0.4])
def test_the_docs_give_the_same_advice_on_the_prior(share):
    page = (Path(__file__).parents[2] / "docs" / "average-precision.md").read_text(encoding="utf-8")
    advice = training_prior(share).replace(f"{share:.2g}", "share") if share >= 0.1 else training_prior(share)
    row = next(
        cells
        for line in page.splitlines()
        if line.startswith("| ")
        and len(cells := line.strip("| ").split(" | ")) == 2
        and (limits := re.fullmatch(r"(?:from ([.\d]+))?(?: ?to ([.\d]+))?", cells[0]))
        and float(limits[1] or 0) <= share < float(limits[2] or 1)
    )
    assert row[1] == f"`AUPRCLoss({advice})`"


def expected(*parts) -> list[str]:
    return [what for what in said(*parts, severity="note") if "95 % interval" in what]


def test_a_single_part_is_told_how_exact_its_test_part_will_be():
    labels = torch.zeros(1000, dtype=torch.int64).index_fill_(0, torch.arange(150), 1)
    assert expected(make(1000, labels=labels)) == [
        "150 positive rows, of which a test part of 20 % gets about 30: an AP of 0.5 there has a 95 % interval of "
        "about 0.33 to 0.67"
    ]


def test_of_several_parts_those_to_measure_on_are_told_how_exact_they_are():
    labels = torch.zeros(400, dtype=torch.int64).index_fill_(0, torch.arange(30), 1)
    assert expected(make(200), make(400, seed=1, labels=labels)) == [
        "30 positive rows: an AP of 0.5 there has a 95 % interval of about 0.33 to 0.67"
    ]


def test_lists_are_told_how_exact_a_mean_over_them_is():
    part = make(1000, lists=100, labels=(torch.arange(1000) % 20 == 0).long())  # a positive row in every other list
    assert expected(part) == [
        "50 lists with a positive row, of which a test part of 20 % gets about 10: the mean of a metric there has a "
        "95 % interval of at most ± 0.31"
    ]


def test_labels_of_one_kind_promise_nothing():
    assert not expected(make(labels=[0] * 200))
    assert not expected(make(labels=[1] * 200))
