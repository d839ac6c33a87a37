"""Gains: one definition for the metric and its loss."""

from __future__ import annotations

import pytest
import torch

from rankwise.surrogates import describe_gain, gain_function


@pytest.mark.parametrize(
    "gain, expected", [("exp2", [0.0, 1.0, 2**0.5 - 1, 2.0**60 - 1]), ("linear", [0.0, 1.0, 0.5, 60.0])]
)
def test_named_gain_is_its_formula(gain, expected):
    found = gain_function(gain)(torch.tensor([0.0, 1.0, 0.5, 60.0]))
    torch.testing.assert_close(found, torch.tensor(expected, dtype=torch.float64))


@pytest.mark.parametrize("dtype", [torch.bool, torch.int64, torch.float16])
def test_gains_are_double_whatever_the_labels_are(dtype):
    found = gain_function("exp2")(torch.tensor([0, 1]).to(dtype))
    assert found.dtype == torch.float64
    assert found.tolist() == [0.0, 1.0]


def test_own_function_is_given_doubles():
    seen = []
    gain_function(lambda grades: seen.append(grades.dtype) or grades)(torch.tensor([1, 2]))
    assert seen == [torch.float64]


@pytest.mark.parametrize("gain, words", [("exp2", "2^y - 1"), ("linear", "y"), (torch.sqrt, "sqrt")])
def test_gain_is_described_in_words(gain, words):
    assert describe_gain(gain) == words
