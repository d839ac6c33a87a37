"""Retrieval: every item a query, itself left out, classes as groups."""

from __future__ import annotations

import pytest
import torch

from rankwise.losses import AUPRCLoss, BinaryCrossEntropyLoss, EmbeddingLoss


def batch(count=8, classes=2, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(count, 5, generator=generator, dtype=torch.float64), torch.arange(count) % classes


def test_equals_the_list_loss_query_by_query():
    embeddings, labels = batch()
    unit = torch.nn.functional.normalize(embeddings)
    values = []
    for query in range(len(labels)):
        others = torch.arange(len(labels)) != query
        scores, relevant = unit[others] @ unit[query], labels[others] == labels[query]
        values.append(AUPRCLoss(recall="batch")(scores, relevant))
    ours = EmbeddingLoss(AUPRCLoss(recall="batch"))(embeddings, labels)
    torch.testing.assert_close(ours, torch.stack(values).mean())


def test_gradient_is_that_of_the_value():
    embeddings, labels = batch(6)
    loss = EmbeddingLoss(AUPRCLoss(recall="batch", recall_gradient="full", tau=0.5, tau_recall=0.5))
    # The recall's comparison side stays constant by definition, so check a loss without one as well.
    assert torch.autograd.gradcheck(
        lambda e: EmbeddingLoss(BinaryCrossEntropyLoss())(e, labels), (embeddings.requires_grad_(),)
    )
    loss(embeddings, labels).backward()
    assert bool(torch.isfinite(embeddings.grad).all())
    # Cosine similarity ignores lengths, so the gradient is at right angles to the embedding.
    torch.testing.assert_close((embeddings.grad * embeddings.detach()).sum(1), torch.zeros(6, dtype=torch.float64))


def test_memory_is_one_row_per_class():
    loss = EmbeddingLoss(AUPRCLoss())
    embeddings, labels = batch(12, classes=3)
    loss(embeddings, labels * 100 - 50)
    assert loss.loss.tracker.table.ids.tolist() == [-50, 50, 150]


def test_references_take_the_place_of_the_batch():
    embeddings, labels = batch()
    loss = EmbeddingLoss(AUPRCLoss(recall="batch"))
    references, reference_labels = batch(10, seed=1)
    value = loss(embeddings[:1], labels[:1], references, reference_labels)
    unit, unit_references = (torch.nn.functional.normalize(t) for t in (embeddings, references))
    expected = AUPRCLoss(recall="batch")(unit_references @ unit[0], reference_labels == labels[0])
    torch.testing.assert_close(value, expected)


def test_the_batch_itself_as_reference_keeps_the_query_among_the_ranked():
    embeddings, labels = batch()
    loss = EmbeddingLoss(AUPRCLoss(recall="batch"), similarity="dot")
    assert float(loss(embeddings, labels, embeddings, labels)) != float(loss(embeddings, labels))


def test_separated_classes_cost_nothing_and_mixed_ones_much():
    labels = torch.tensor([0, 0, 1, 1])
    separated = torch.eye(2)[labels]
    loss = EmbeddingLoss(AUPRCLoss(prior=0.1))
    assert float(loss(separated, labels)) == 0
    assert float(loss(separated, torch.tensor([0, 1, 0, 1]))) > 0.9


def test_half_precision_embeddings():
    embeddings, labels = batch()
    half = embeddings.half().requires_grad_()
    value = EmbeddingLoss(AUPRCLoss())(half, labels)
    value.backward()
    assert half.grad.dtype == torch.float16
    torch.testing.assert_close(value.detach(), EmbeddingLoss(AUPRCLoss())(half.detach().float(), labels))


@pytest.mark.parametrize(
    "arguments, kind, message",
    [
        ((torch.rand(4), torch.zeros(4, dtype=torch.int64)), ValueError, r"embeddings: expected .* shape \(B, d\)"),
        ((torch.rand(4, 2), torch.zeros(3, dtype=torch.int64)), ValueError, "labels: expected the shape of one class"),
        ((torch.rand(4, 2), torch.rand(4)), TypeError, "labels: expected integers"),
        ((torch.full((4, 2), torch.nan), torch.zeros(4, dtype=torch.int64)), ValueError, "embeddings: expected finite"),
        (
            (torch.rand(4, 2), torch.zeros(4, dtype=torch.int64), torch.rand(4, 2), None),
            ValueError,
            "reference_embeddings: expected both",
        ),
        (
            (torch.rand(4, 2), torch.zeros(4, dtype=torch.int64), torch.rand(4, 3), torch.zeros(4, dtype=torch.int64)),
            ValueError,
            "reference_embeddings: expected 2 numbers each, got 3",
        ),
    ],
)
def test_bad_input_is_named(arguments, kind, message):
    with pytest.raises(kind, match=message):
        EmbeddingLoss(AUPRCLoss())(*arguments)


def test_only_list_losses_are_taken():
    with pytest.raises(TypeError, match="loss: expected a list loss, got MSELoss"):
        EmbeddingLoss(torch.nn.MSELoss())
    with pytest.raises(ValueError, match="similarity: unknown word 'l2'"):
        EmbeddingLoss(AUPRCLoss(), similarity="l2")
