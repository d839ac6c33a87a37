"""The context-aware ranker: items see their list and nothing else, in no order."""

from __future__ import annotations

import pytest
import torch

from rankwise.losses import create_loss
from rankwise.models import ContextAwareRanker


@pytest.fixture
def ranker():
    torch.manual_seed(0)
    return ContextAwareRanker(5, dimensions=16, heads=2, feedforward=32).double().eval()


FEATURES = torch.randn(40, 5, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
QUERIES = torch.tensor([3] * 3 + [-7] * 20 + [0] * 1 + [12] * 16)


def test_order_of_items_changes_nothing_but_the_order_of_scores(ranker):
    order = torch.randperm(40)
    torch.testing.assert_close(ranker(FEATURES[order], QUERIES[order]), ranker(FEATURES, QUERIES)[order])


def test_lists_do_not_see_each_other(ranker):
    together = ranker(FEATURES, QUERIES)
    for query in QUERIES.unique():
        mine = query == QUERIES
        torch.testing.assert_close(ranker(FEATURES[mine]), together[mine])


def test_items_see_their_list(ranker):
    changed = FEATURES.clone()
    changed[0] += 1
    difference = (ranker(changed, QUERIES) - ranker(FEATURES, QUERIES)).abs()
    assert (difference[:3] > 1e-6).all()
    assert (difference[3:] < 1e-12).all()


def test_padded_lists_score_like_ragged_ones_whatever_the_padding_holds(ranker):
    ragged = ranker(FEATURES, QUERIES)
    padded = torch.full((2, 25, 5), 1e3, dtype=torch.float64)
    padded[0, :20], padded[1, 4:7] = FEATURES[3:23], FEATURES[:3]
    mask = torch.zeros(2, 25, dtype=torch.bool)
    mask[0, :20], mask[1, 4:7] = True, True
    scores = ranker(padded, mask=mask)
    torch.testing.assert_close(scores[0, :20], ragged[3:23])
    torch.testing.assert_close(scores[1, 4:7], ragged[:3])
    assert not scores[~mask].any()


def test_scoring_without_a_graph_gives_the_same(ranker):
    expected = ranker(FEATURES, QUERIES)
    with torch.inference_mode():
        torch.testing.assert_close(ranker(FEATURES, QUERIES), expected)


def test_a_list_of_padding_only_is_harmless(ranker):
    mask = torch.tensor([[True, True], [False, False]])
    features = torch.zeros(2, 2, 5, dtype=torch.float64, requires_grad=True)
    scores = ranker.train()(features, mask=mask)
    scores.sum().backward()
    assert torch.isfinite(features.grad).all()
    assert not scores[1].any()


def test_training_brings_the_loss_to_its_minimum():
    torch.manual_seed(0)
    ranker = ContextAwareRanker(5, dimensions=16, feedforward=32, dropout=0)
    features = FEATURES.float()
    # The grade of an item depends on the others of its list: whether it is above their mean.
    means = torch.stack([features[q == QUERIES, 0].mean() for q in QUERIES])
    labels = (features[:, 0] > means).long()
    loss, optimiser = create_loss("listnet"), torch.optim.Adam(ranker.parameters(), 3e-3)
    values = []
    for _ in range(60):
        optimiser.zero_grad()
        value = loss(ranker(features, QUERIES), labels, query_ids=QUERIES)
        value.backward()
        optimiser.step()
        values.append(value.item())
    lowest = loss(labels.float(), labels, query_ids=QUERIES).item()
    assert lowest - 1e-6 < values[-1] < lowest + 0.02 < values[0]


@pytest.mark.parametrize(
    "shape, ids, error, message",
    [
        ((4,), None, ValueError, r"features: expected \(N, D\) or \(Q, L, D\), got shape \(4,\)"),
        ((4, 5), torch.zeros(3, dtype=torch.int64), ValueError, "query_ids: expected the shape of one id per row"),
        ((4, 5), torch.zeros(4), TypeError, r"query_ids: expected integers \(int64\)"),
    ],
)
def test_wrong_input_is_refused_by_name(ranker, shape, ids, error, message):
    with pytest.raises(error, match=message):
        ranker(torch.zeros(shape, dtype=torch.float64), ids)
