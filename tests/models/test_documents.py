"""Scorers of documents: convolutions and pooling by the definition; padding and length change nothing."""

from __future__ import annotations

import pytest
import torch

from oracles.models import pooled_convolution
from rankwise.models import XMLCNN, BagOfWordsScorer


@pytest.fixture
def cnn():
    torch.manual_seed(0)
    return XMLCNN(20, 3, dimensions=4, widths=(2, 5), filters=6, parts=3, bottleneck=7).double().eval()


@pytest.mark.parametrize("length", [1, 2, 4, 5, 9, 13])
def test_xml_cnn_is_its_definition(cnn, length):
    words = torch.randint(20, (length,))
    vectors = cnn.vectors(words)
    pooled = [pooled_convolution(vectors, layer.weight, layer.bias, 3).flatten() for layer in cnn.convolutions]
    expected = cnn.leave(torch.relu(cnn.bottleneck(torch.cat(pooled))))
    torch.testing.assert_close(cnn(words[None])[0], expected)


def test_padding_changes_nothing(cnn):
    words = torch.randint(20, (4, 12))
    mask = torch.arange(12) < torch.tensor([3, 12, 1, 7])[:, None]
    scores = cnn(words, mask=mask)
    for row, length in enumerate((3, 12, 1, 7)):
        torch.testing.assert_close(scores[row : row + 1], cnn(words[row : row + 1, :length]))


def test_gradient_of_xml_cnn_reaches_all_its_words_and_no_padding(cnn):
    words, mask = torch.arange(8)[None], torch.arange(8)[None] < 5
    cnn(words, mask=mask).sum().backward()
    touched = cnn.vectors.weight.grad.abs().sum(1) > 0
    assert not touched[5:].any()
    assert touched[:5].any()


def test_holes_in_a_document_are_refused(cnn):
    with pytest.raises(ValueError, match="mask: expected False only after the last word"):
        cnn(torch.zeros(1, 3, dtype=torch.int64), mask=torch.tensor([[True, False, True]]))


@pytest.mark.parametrize("layout", [torch.strided, torch.sparse_coo])
def test_bag_of_words_adds_up_the_vectors_of_the_words(layout):
    model = BagOfWordsScorer(5, 3, hidden=(4,)).eval()
    counts = torch.tensor([[2.0, 0, 0, 1, 0]])
    vectors = model.layers[0].weight.T
    hidden = torch.relu((2 * vectors[0] + vectors[3]) / 5**0.5 + model.layers[0].bias)
    expected = model.layers[-1](hidden)
    given = counts if layout == torch.strided else counts.to_sparse()
    torch.testing.assert_close(model(given)[0], expected)


def test_bag_of_words_does_not_see_the_length_of_a_document():
    model = BagOfWordsScorer(5, 3).eval()
    counts = torch.tensor([[2, 0, 0, 1, 0], [0, 0, 0, 0, 0]])
    torch.testing.assert_close(model(counts), model(7 * counts))
    assert torch.isfinite(model(counts)).all()
