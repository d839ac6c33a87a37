"""Faster R-CNN: both stages are torchvision's, proposals are labelled as they overlap, ignored objects do not count."""

from __future__ import annotations

import math
import sys

import pytest
import torch

from rankwise.models import FasterRCNNDetector

torchvision = pytest.importorskip("torchvision")

SIZE = (64, 96)
CORNERS = torch.tensor([[[5.0, 6, 25, 21], [40, 20, 60, 44]], [[11, 9, 33, 40], [0, 0, 0, 0]]])
MASK = torch.tensor([[True, True], [True, False]])
LABELS = torch.tensor([[0, 2], [1, 0]])
NOTHING = torch.zeros_like(MASK)


def make(**options):
    torch.manual_seed(0)
    return FasterRCNNDetector(3, SIZE, **{"channels": 16, "scale": 2, **options})


def images(count=2):
    return torch.rand(count, 3, *SIZE, generator=torch.Generator().manual_seed(1))


def watched(detector):
    """What the second stage is given to learn from, and what it says, noted in every pass."""
    seen = {}
    choose = detector.second.select_training_samples

    def note(*given):
        seen["chosen"] = choose(*given)
        return seen["chosen"]

    detector.second.select_training_samples = note
    detector.second.box_predictor.register_forward_hook(lambda module, given, said: seen.update(said=said))
    return seen


def overlap(one, other):
    width = min(one[2], other[2]) - max(one[0], other[0])
    height = min(one[3], other[3]) - max(one[1], other[1])
    shared = max(0.0, width) * max(0.0, height)
    return shared / (sum((box[2] - box[0]) * (box[3] - box[1]) for box in (one, other)) - shared)


def test_proposals_are_for_the_object_they_overlap_by_half():
    detector = make()
    seen = watched(detector)
    sampled = detector(images(), LABELS, CORNERS, MASK, NOTHING)
    expected = []
    for image, boxes in enumerate(seen["chosen"][0]):
        known = MASK[image]
        own = list(zip(CORNERS[image][known].tolist(), LABELS[image][known].tolist(), strict=True))
        for box in boxes.tolist():
            best, label = max((overlap(box, other), label) for other, label in own)
            expected.append(label if best >= 0.5 else -1)
    assert sampled.labels.tolist() == expected
    assert set(expected) == {-1, 0, 1, 2}
    assert sampled.logits.shape == (len(expected), 3)


def test_the_losses_of_both_stages_are_torchvisions():
    from torchvision.models.detection.anchor_utils import AnchorGenerator
    from torchvision.models.detection.image_list import ImageList
    from torchvision.models.detection.roi_heads import fastrcnn_loss
    from torchvision.models.detection.rpn import RegionProposalNetwork

    detector = make()
    seen = watched(detector)
    torch.manual_seed(3)
    sampled = detector(images(), LABELS, CORNERS, MASK, NOTHING)
    _, _, labels, goals = seen["chosen"]
    logits, deltas = seen["said"]
    # There the background has a box, too, of which nothing is asked.
    more_logits, more_deltas = (torch.nn.functional.pad(each, (width, 0)) for each, width in ((logits, 1), (deltas, 4)))
    torch.testing.assert_close(sampled.box_loss, fastrcnn_loss(more_logits, more_deltas, labels, goals)[1])

    sizes = tuple((2.0 * stride,) for stride in (8, 16, 32))
    usual = {"training": 1000, "testing": 1000}
    theirs = RegionProposalNetwork(
        AnchorGenerator(sizes, ((1.0,),) * 3), detector.first.head, 0.7, 0.3, 256, 0.5, usual, usual, 0.7
    )
    detector.eval()  # the statistics of batch normalisation stay as they are
    theirs.train()
    detector.first.train()
    maps = detector.backbone(images())
    targets = [{"boxes": box[known], "ignored": torch.zeros(0, 4)} for box, known in zip(CORNERS, MASK, strict=True)]
    found = []
    for network in (detector.first, theirs):
        torch.manual_seed(4)
        found.append(network(ImageList(images(), [SIZE] * 2), maps, targets))
    (ours, our_losses), (boxes, losses) = found
    torch.testing.assert_close(ours, boxes)
    torch.testing.assert_close(our_losses, losses)


def test_both_stages_learn_from_all_terms():
    detector = make()
    sampled = detector(images(), LABELS, CORNERS, MASK, NOTHING)
    (sampled.logits.square().mean() + sampled.box_loss + sampled.proposal_loss).backward()
    still = [name for name, weight in detector.named_parameters() if weight.grad is None or not weight.grad.any()]
    assert still == []


def test_not_more_are_sampled_than_asked_for():
    detector = make(sampled=16)
    for _ in range(3):
        sampled = detector(images(), LABELS, CORNERS, MASK, NOTHING)
        assert len(sampled.labels) == 2 * 16
        assert 1 <= int((sampled.labels >= 0).sum()) <= 2 * 4


def test_ignored_objects_are_neither_right_nor_wrong():
    detector = make()
    seen = watched(detector)
    ignored = torch.tensor([[True, False], [False, False]])
    sampled = detector(images(), LABELS, CORNERS, MASK, ignored)
    assert 0 not in sampled.labels.tolist()
    box = CORNERS[0, 0].tolist()

    def half_on_it(other):
        width = min(box[2], other[2]) - max(box[0], other[0])
        height = min(box[3], other[3]) - max(box[1], other[1])
        return max(0, width) * max(0, height) >= (other[2] - other[0]) * (other[3] - other[1]) / 2

    assert not any(half_on_it(other) for other in seen["chosen"][0][0].tolist())
    grid = detector.first.anchor_generator.corners
    targets = [{"boxes": CORNERS[0, 1:], "ignored": CORNERS[0, :1]}]
    labels, _ = detector.first.assign_targets_to_anchors([grid], targets)
    on_it = torch.tensor([half_on_it(other) for other in grid.tolist()])
    assert int(on_it.sum()) > 0
    assert set(labels[0][on_it].tolist()) == {-1.0}
    assert 0.0 in labels[0][~on_it].tolist()


def test_images_without_objects_teach_what_is_background():
    detector = make()
    sampled = detector(
        images(), torch.zeros(2, 0, dtype=torch.int64), torch.zeros(2, 0, 4), *NOTHING.new_zeros(2, 2, 0)
    )
    assert set(sampled.labels.tolist()) == {-1}
    assert sampled.box_loss.item() == 0
    assert sampled.proposal_loss.item() > 0


def test_boxes_that_do_not_move_are_the_proposals():
    detector = make().eval()
    for value in detector.second.box_predictor.bbox_pred.parameters():
        torch.nn.init.zeros_(value)
    _, proposals, _ = detector._propose(images(), None)
    found = detector.find(images())
    assert [len(each.scores) for each in found] == [len(each) for each in proposals]
    for each, boxes in zip(found, proposals, strict=True):
        torch.testing.assert_close(each.corners, boxes[:, None].expand(-1, 3, -1), rtol=1e-4, atol=1e-4)
        # All scores begin at the logit of the prior.
        assert each.scores.mean().item() == pytest.approx(math.log(0.01 / 0.99), abs=0.2)


def test_a_resnet_proposes_on_five_levels():
    detector = make(backbone="resnet18", channels=8).eval()
    assert len(detector.first.anchor_generator.corners) == 129
    assert detector.find(images(1))[0].corners.shape[1:] == (3, 4)


@pytest.mark.parametrize(
    "options, message",
    [
        ({"backbone": "resnet34"}, "backbone: unknown word 'resnet34'"),
        ({"channels": 20}, "channels: expected a multiple of 8, got 20"),
        ({"prior": 1.0}, "prior: expected"),
        ({"sampled": 0}, "sampled: expected"),
    ],
)
def test_wrong_options_are_named(options, message):
    with pytest.raises(ValueError, match=message):
        make(**options)


def test_without_torchvision_it_says_how_to_get_it(monkeypatch):
    monkeypatch.setitem(sys.modules, "torchvision", None)
    with pytest.raises(ModuleNotFoundError, match=r"Faster R-CNN needs torchvision: pip install 'rankwise\[vision\]'"):
        make()
