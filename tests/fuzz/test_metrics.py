"""Whatever lists come, every metric is within its range or undefined, and asks neither for order nor for layout."""

from __future__ import annotations

from functools import partial

import pytest
import torch

from fuzz.cases import Case, cases, refused_scores, search, searches
from rankwise.metrics import METRICS, create_metric, evaluate

# Ragged lists may all hold one item.
pytestmark = pytest.mark.filterwarnings("ignore:query_ids. each of the")

NAMES = [name for record in METRICS for name in (record.name, *([f"{record.name}@3"] if record.takes_k else []))]


def measured(name: str, case: Case, scores: torch.Tensor) -> torch.Tensor:
    given = {key: value for key, value in case.given.items() if key != "sample_ids"}
    return evaluate(scores, case.labels, name, **given, bootstrap=0).per_query[name]


def takes(name: str, case: Case) -> bool:
    """Some metrics know no item weights but 0 and 1."""
    weights = case.given.get("weights")
    only_whole = weights is not None and not create_metric(name).record.takes_item_weights
    return not only_whole or bool((weights[case.counted] == 1).all())


def check(name: str, case: Case) -> None:
    if not takes(name, case):
        with pytest.raises(ValueError, match=r"^weights: .* takes item weights of 0 or 1 only"):
            measured(name, case, case.scores)
        return
    values = measured(name, case, case.laid_out(case.scores))
    defined = values[~values.isnan()]
    assert values.dtype == torch.float64
    assert bool(((defined >= 0) & (defined <= 1 + 1e-9)).all()), defined
    assert torch.equal(values.nan_to_num(-1), measured(name, case, case.scores.clone().contiguous()).nan_to_num(-1))
    assert torch.equal(values.nan_to_num(-1), measured(name, case, case.scores.double()).nan_to_num(-1))
    if case.scores.dim() == 1:
        order = torch.arange(len(case.scores) - 1, -1, -1)
        given = {key: value[order] for key, value in case.given.items() if key != "sample_ids"}
        turned = evaluate(case.scores[order], case.labels[order], name, **given, bootstrap=0).per_query[name]
        assert torch.allclose(values, turned, atol=1e-9, equal_nan=True)


@searches
@pytest.mark.parametrize("name", NAMES)
def test_any_lists_give_values_in_range(name, examples):
    search(partial(check, name), cases(METRICS.get(name.partition("@")[0]).labels), examples)


def check_refused(name: str, given: tuple[Case, torch.Tensor]) -> None:
    case, bad = given
    with pytest.raises(ValueError, match=r"^(scores: expected finite numbers, got 1 NaN|weights: )"):
        measured(name, case, bad)


@searches
@pytest.mark.parametrize("name", NAMES)
def test_scores_that_are_no_numbers_are_refused(name, examples):
    search(partial(check_refused, name), refused_scores(METRICS.get(name.partition("@")[0]).labels), examples)
