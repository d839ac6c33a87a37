"""Retrieval by blocks against plain ranking of each query."""

from __future__ import annotations

import pytest
import torch

from oracles import metrics as oracle
from rankwise.metrics import create_metric, evaluate_retrieval

METRICS = {
    "map": oracle.average_precision,
    "map@r": oracle.map_at_r,
    "r-precision": oracle.r_precision,
    "recall@1": lambda items: oracle.hit(items, 1),
    "recall@3": lambda items: oracle.hit(items, 3),
    "precision@2": lambda items: oracle.precision(items, 2),
    "mrr": lambda items: oracle.reciprocal_rank(items, None),
    "auroc": oracle.auroc,
    "pap@2": lambda items: oracle.pap(items, 2),
}


def similarity(query, item, distance):
    if distance == "euclidean":
        return -float((query - item).square().sum())
    if distance == "cosine":
        return float(query @ item / (query.norm() * item.norm()))
    return float(query @ item)


def plain(of_list, queries, labels, gallery, gallery_labels, distance, *, without_self):
    values = []
    for i, (query, label) in enumerate(zip(queries, labels, strict=True)):
        items = [
            (similarity(query, item, distance), float(other == label))
            for j, (item, other) in enumerate(zip(gallery, gallery_labels, strict=True))
            if not (without_self and i == j)
        ]
        values.append(of_list(items))
    return torch.tensor(values, dtype=torch.float64)


def points(size, seed, classes):
    """Whole coordinates: similarities are exact, and many are tied."""
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(0, 3, (size, 3), generator=generator).double(), torch.randint(
        classes, (size,), generator=generator
    )


@pytest.mark.parametrize("distance", ["dot", "euclidean"])
@pytest.mark.parametrize("block_size", [None, 1, 3])
def test_all_against_all_is_each_item_against_the_others(distance, block_size):
    # The mean of 8 whole points is exact, so that tied distances stay tied.
    embeddings, labels = points(8, 0, 3)
    options = {"similarity": distance, "block_size": block_size, "bootstrap": 0}
    found = evaluate_retrieval(embeddings, labels, list(METRICS), **options)
    for name, of_list in METRICS.items():
        expected = plain(of_list, embeddings, labels, embeddings, labels, distance, without_self=True)
        torch.testing.assert_close(found.per_query[name], expected, rtol=0, atol=1e-12, equal_nan=True)


@pytest.mark.parametrize("distance", ["cosine", "dot", "euclidean"])
def test_gallery_is_ranked_for_each_query(distance):
    generator = torch.Generator().manual_seed(1)
    queries, gallery = torch.randn(12, 4, generator=generator), torch.randn(30, 4, generator=generator)
    labels, gallery_labels = torch.arange(12) % 5, torch.arange(30) % 4
    found = evaluate_retrieval(
        queries,
        labels,
        list(METRICS),
        reference_embeddings=gallery,
        reference_labels=gallery_labels,
        similarity=distance,
        block_size=5,
        bootstrap=0,
    )
    for name, of_list in METRICS.items():
        expected = plain(of_list, queries, labels, gallery, gallery_labels, distance, without_self=False)
        torch.testing.assert_close(found.per_query[name], expected, rtol=0, atol=1e-12, equal_nan=True)
    assert found.skipped["map"] == int((labels == 4).sum())


def test_block_size_changes_nothing():
    generator = torch.Generator().manual_seed(2)
    embeddings, labels = torch.randint(-2, 3, (70, 6), generator=generator).float(), torch.arange(70) // 5
    values = [
        evaluate_retrieval(embeddings, labels, "map", similarity="dot", block_size=size, bootstrap=0).per_query["map"]
        for size in (None, 1, 7, 1000)
    ]
    for other in values[1:]:
        torch.testing.assert_close(other, values[0], rtol=0, atol=1e-14)


def test_euclidean_keeps_its_digits_far_from_the_origin():
    generator = torch.Generator().manual_seed(3)
    embeddings, labels = torch.randn(60, 8, generator=generator), torch.arange(60) // 4
    near, far = (
        evaluate_retrieval(shifted, labels, "map", similarity="euclidean", bootstrap=0).means["map"]
        for shifted in (embeddings.double(), embeddings.double().add(1000.0).float())
    )
    assert far == pytest.approx(near, abs=1e-3)


def test_recall_is_the_hit_rate_of_the_retrieval_literature():
    embeddings, labels = torch.eye(4) + 0.1, torch.tensor([0, 0, 1, 1])
    result = evaluate_retrieval(embeddings, labels, ["recall@1", "hit@1"], bootstrap=0)
    assert result.means["recall@1"] == result.means["hit@1"]
    assert "1 if a relevant item is among the first 1" in result.definitions["recall@1"]


def test_equal_embeddings_share_the_chance_of_being_first():
    # Of the three others, all alike, one is relevant. Vectors of length 2: no product is rounded.
    result = evaluate_retrieval(torch.ones(4, 4), torch.tensor([0, 0, 1, 1]), ["recall@1", "map"], bootstrap=0)
    assert result.means["recall@1"] == pytest.approx(1 / 3)
    assert result.means["map"] == pytest.approx(1 / 3)
    assert result.tied == 1


def test_item_alone_in_its_class_is_left_out_and_counted():
    result = evaluate_retrieval(torch.eye(3), torch.tensor([5, 5, -9]), "map", bootstrap=0)
    assert result.skipped == {"map": 1}
    assert torch.isnan(result.per_query["map"]).tolist() == [False, False, True]


def test_pessimistic_ties_put_the_relevant_last():
    metric = create_metric("map", ties="pessimistic")
    result = evaluate_retrieval(torch.ones(4, 4), torch.tensor([0, 0, 1, 1]), metric, bootstrap=0)
    assert result.means["map"] == pytest.approx(1 / 3)
    hit = create_metric("hit@2", ties="pessimistic")
    assert evaluate_retrieval(torch.ones(4, 4), torch.tensor([0, 0, 1, 1]), hit, bootstrap=0).means["hit@2"] == 0


def test_half_precision_embeddings_are_ranked_in_single_precision():
    generator = torch.Generator().manual_seed(4)
    embeddings, labels = torch.randn(50, 16, generator=generator).half(), torch.arange(50) // 5
    half, single = (evaluate_retrieval(e, labels, "map", bootstrap=0).means for e in (embeddings, embeddings.float()))
    assert half == single


def test_interval_over_queries_holds_the_mean():
    generator = torch.Generator().manual_seed(5)
    result = evaluate_retrieval(torch.randn(200, 8, generator=generator), torch.arange(200) // 4, ("map", "recall@1"))
    for name, (low, high) in result.intervals.items():
        assert low < result.means[name] < high
    assert set(result.intervals) == {"map", "recall@1"}


@pytest.mark.parametrize("distance", ["cosine", "dot", "euclidean"])
@pytest.mark.parametrize(
    "dtype, exponent",
    [(torch.float32, e) for e in (-100, -40, 40, 63, 100, 120)] + [(torch.float64, e) for e in (-600, -40, 40, 900)],
)
def test_the_unit_of_the_embeddings_changes_nothing(distance, dtype, exponent):
    """Products of large or small numbers leave the range of their dtype; powers of 2 change no digit."""
    points = torch.randn(60, 5, generator=torch.Generator().manual_seed(0), dtype=dtype)
    classes = torch.arange(60) % 7
    plain, scaled = (
        evaluate_retrieval(each, classes, ["map", "mrr"], similarity=distance, bootstrap=0).per_query
        for each in (points, points * 2.0**exponent)
    )
    for name, values in plain.items():
        assert torch.equal(values, scaled[name]), name


def test_cosines_do_not_depend_on_the_lengths_of_single_vectors():
    points = torch.randn(40, 5, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    lengths = torch.randint(-100, 100, (40, 1), generator=torch.Generator().manual_seed(1))
    plain, scaled = (
        evaluate_retrieval(each, torch.arange(40) % 5, ["map"], bootstrap=0).per_query["map"]
        for each in (points, torch.ldexp(points, lengths))
    )
    assert torch.equal(plain, scaled)


def test_recall_is_the_hit_rate_and_says_so():
    embeddings, labels = points(12, 3, 3)
    result = evaluate_retrieval(embeddings, labels, ["recall@2", "hit@2"], bootstrap=0)
    assert torch.equal(result.per_query["recall@2"], result.per_query["hit@2"])
    assert result.definitions["recall@2"].startswith("hit rate (recall@k in the retrieval literature)")
    assert "literature" not in result.definitions["hit@2"]


def test_the_old_names_of_the_references_warn_and_give_the_same():
    embeddings, labels = points(12, 3, 3)
    more, classes = points(20, 4, 3)
    new = {"reference_embeddings": more, "reference_labels": classes, "similarity": "euclidean"}
    old = {"gallery_embeddings": more, "gallery_labels": classes, "distance": "euclidean"}
    expected = evaluate_retrieval(embeddings, labels, "map", bootstrap=0, **new)
    with pytest.warns(FutureWarning) as caught:
        result = evaluate_retrieval(embeddings, labels, "map", bootstrap=0, **old)
    assert result.means == expected.means
    assert [str(each.message).rpartition(" ")[2] for each in caught] == list(new)
