"""Checks of input: each error names the argument, what was expected and what came; good input passes unchanged."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from rankwise import checks

INF, NAN = float("inf"), float("nan")


@pytest.mark.parametrize("value", [[1, 2], np.ones(3), torch.ones(2, 2), 1.5, True, [[0.5], [1.0]]])
def test_numbers_of_any_container_become_tensors(value):
    tensor = checks.check_tensor("scores", value)
    assert tensor.tolist() == torch.as_tensor(value).tolist()


def test_a_tensor_stays_the_same_object():
    scores = torch.ones(3, requires_grad=True)
    assert checks.check_tensor("scores", scores) is scores


@pytest.mark.parametrize("value", ["abc", None, {"a": 1}, [1, "x"], [[1], [1, 2]], object()])
def test_other_things_are_refused_as_tensors(value):
    expected = f"scores: expected a tensor or an array of numbers, got {type(value).__name__}"
    with pytest.raises(TypeError, match=expected):
        checks.check_tensor("scores", value)


@pytest.mark.parametrize(
    "array, kind",
    [
        (np.array([1, None]), "ndarray of object"),
        (np.array(["2026-01-01"], dtype="datetime64[D]"), r"ndarray of datetime64\[D\]"),
        (np.array([1.0], dtype=np.longdouble), f"ndarray of {np.dtype(np.longdouble)}"),
    ],
)
def test_arrays_of_other_things_are_refused_by_their_type(array, kind):
    with pytest.raises(TypeError, match=f"scores: expected a tensor or an array of numbers, got {kind}$"):
        checks.check_tensor("scores", array)


@pytest.mark.parametrize("name", ["scores", "labels"])
def test_masked_items_of_an_array_are_refused_not_counted(name):
    array = np.ma.array([1.0, 0.0, 1.0], mask=[True, False, False])
    with pytest.raises(ValueError, match=f"{name}: expected an array without masked items, got 1; pass mask="):
        checks.check_tensor(name, array)


def test_tensors_without_dense_values_are_refused():
    with pytest.raises(TypeError, match=r"scores: expected a dense tensor, got one of torch\.sparse_coo"):
        checks.check_tensor("scores", torch.ones(3).to_sparse())


def test_numbers_of_numpy_are_numbers():
    assert checks.check_positive("tau", np.float32(0.5)) == 0.5
    assert checks.check_share("prior", np.float64(0.5)) == 0.5
    for bad in (np.bool_(True), np.complex64(1)):
        with pytest.raises(TypeError, match="tau: expected a number"):
            checks.check_positive("tau", bad)


def test_non_finite_values_are_counted_and_located():
    with pytest.raises(ValueError, match="scores: expected finite numbers, got 2 NaN or infinite of 4, first at 1, 3"):
        checks.check_finite("scores", torch.tensor([0.0, NAN, 1.0, -INF]))
    with pytest.raises(ValueError, match=r"first at \(0, 1\)"):
        checks.check_finite("scores", torch.tensor([[0.0, INF], [1.0, 2.0]]))


def test_opposite_infinities_do_not_hide_each_other():
    with pytest.raises(ValueError, match="got 2 NaN or infinite"):
        checks.check_finite("scores", torch.tensor([INF, -INF]))


@pytest.mark.parametrize(
    "values",
    [
        torch.full((4,), torch.finfo(torch.float64).max, dtype=torch.float64),
        torch.full((4,), torch.finfo(torch.float16).max, dtype=torch.float16),
        torch.tensor([1, 2, 3]),
        torch.zeros(0),
    ],
    ids=["sum overflows", "half", "integers", "nothing"],
)
def test_finite_values_pass(values):
    checks.check_finite("scores", values)


def test_masked_values_need_not_be_finite():
    values = torch.tensor([1.0, NAN])
    checks.check_finite("scores", values, torch.tensor([True, False]))
    with pytest.raises(ValueError, match="got 1 NaN"):
        checks.check_finite("scores", values, torch.tensor([False, True]))


def test_shapes_must_agree():
    checks.check_same_shape("labels", torch.zeros(2, 3), "scores", (2, 3))
    with pytest.raises(ValueError, match=r"labels: expected the shape of scores, \(3, 2\), got \(2, 3\)"):
        checks.check_same_shape("labels", torch.zeros(2, 3), "scores", torch.Size([3, 2]))


@pytest.mark.parametrize(
    "labels, kind",
    [
        ([0, 1, 1], "binary"),
        ([0.0, 1.0], "binary"),
        ([True, False], "binary"),
        ([0, 4, 2], "grades"),
        ([0.5, 3.25], "grades"),
        ([True, False], "grades"),
    ],
)
def test_good_labels_pass(labels, kind):
    checks.check_labels(torch.tensor(labels), kind)


@pytest.mark.parametrize(
    "labels, kind, error, message",
    [
        ([0, 2, 3], "binary", ValueError, r"labels: expected 0 or 1, got 2 \(2 of 3\)"),
        ([0.0, 0.5], "binary", ValueError, "labels: expected 0 or 1, got 0.5"),
        ([-1, 1], "binary", ValueError, "labels: expected 0 or 1, got -1"),
        ([1, -2], "grades", ValueError, r"labels: expected grades of 0 or more, got -2 \(1 of 2\)"),
        ([NAN, 1.0], "grades", ValueError, "labels: expected finite numbers, got 1 NaN"),
        ([INF, 1.0], "grades", ValueError, "labels: expected finite numbers"),
        ([1j, 0j], "binary", TypeError, "labels: expected numbers, got torch.complex64"),
    ],
)
def test_bad_labels_are_named(labels, kind, error, message):
    with pytest.raises(error, match=message):
        checks.check_labels(torch.tensor(labels), kind)


def test_masked_labels_may_be_anything():
    checks.check_labels(torch.tensor([1.0, NAN, -7.0]), "binary", torch.tensor([True, False, False]))


@pytest.mark.parametrize("ids", [[-5, 2**62], np.array([1, 2], dtype=np.uint8), torch.tensor([3], dtype=torch.int32)])
def test_ids_of_any_integer_type_become_int64(ids):
    tensor = checks.check_ids("query_ids", ids)
    assert tensor.dtype == torch.int64
    assert tensor.tolist() == list(ids)


@pytest.mark.parametrize("ids", [[1.0], [True], [1j]])
def test_ids_are_not_rounded(ids):
    with pytest.raises(TypeError, match=r"query_ids: expected integers \(int64\), got torch\."):
        checks.check_ids("query_ids", ids)


BAD_NUMBERS = [
    (checks.check_k, (0,), {}, ValueError, "k: expected a whole number of at least 1 or None .*, got 0"),
    (checks.check_k, (-3,), {}, ValueError, "k: .*got -3"),
    (checks.check_k, (1.0,), {}, TypeError, "k: .*got 1.0"),
    (checks.check_k, (True,), {}, TypeError, "k: .*got True"),
    (checks.check_k, ("5",), {}, TypeError, "k: .*got '5'"),
    (checks.check_share, ("prior", 0), {}, ValueError, r"prior: expected a number in \(0, 1\), got 0"),
    (checks.check_share, ("prior", 1), {}, ValueError, r"prior: expected a number in \(0, 1\), got 1"),
    (checks.check_share, ("prior", -0.1), {}, ValueError, "prior: .*got -0.1"),
    (checks.check_share, ("prior", NAN), {}, ValueError, "prior: .*got nan"),
    (
        checks.check_share,
        ("rate", 1.1),
        {"open_end": False},
        ValueError,
        r"rate: expected a number in \(0, 1\], got 1.1",
    ),
    (checks.check_share, ("prior", "x"), {}, TypeError, "prior: expected a number between 0 and 1, got 'x'"),
    (checks.check_share, ("prior", True), {}, TypeError, "prior: .*got True"),
    (checks.check_positive, ("margin", 0), {}, ValueError, "margin: expected a finite number > 0, got 0"),
    (
        checks.check_positive,
        ("margin", -1),
        {"zero": True},
        ValueError,
        "margin: expected a finite number >= 0, got -1",
    ),
    (checks.check_positive, ("margin", INF), {}, ValueError, "margin: .*got inf"),
    (checks.check_positive, ("margin", NAN), {}, ValueError, "margin: .*got nan"),
    (checks.check_positive, ("margin", None), {}, TypeError, "margin: expected a number, got None"),
    (checks.check_choice, ("ties", "avrage", ("average", "stable")), {}, ValueError, "ties: .*did you mean 'average'"),
    (checks.check_choice, ("ties", 7, ("average", "stable")), {}, ValueError, "ties: unknown word 7 .*average, stable"),
]


@pytest.mark.parametrize("check, arguments, options, error, message", BAD_NUMBERS)
def test_bad_numbers_and_words_are_named(check, arguments, options, error, message):
    with pytest.raises(error, match=message):
        check(*arguments, **options)


@pytest.mark.parametrize(
    "result, expected",
    [
        (checks.check_k(None), None),
        (checks.check_k(1), 1),
        (checks.check_share("prior", 0.25), 0.25),
        (checks.check_share("rate", 1, open_end=False), 1.0),
        (checks.check_positive("margin", 2), 2.0),
        (checks.check_positive("margin", 0, zero=True), 0.0),
        (checks.check_choice("ties", "stable", iter(("average", "stable"))), "stable"),
    ],
)
def test_good_numbers_and_words_pass(result, expected):
    assert result == expected
