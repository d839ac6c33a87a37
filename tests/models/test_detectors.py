"""Anchors, their assignment by ATSS, and RetinaNet: equal to their definitions, kind to bad input."""

from __future__ import annotations

import math
import sys

import pytest
import torch

from rankwise.models import RetinaNetDetector, assign_anchors, make_anchors
from rankwise.models.anchors import moved

torchvision = pytest.importorskip("torchvision")


def overlap(one, other):
    width = min(one[2], other[2]) - max(one[0], other[0])
    height = min(one[3], other[3]) - max(one[1], other[1])
    shared = max(0.0, width) * max(0.0, height)
    area = sum((box[2] - box[0]) * (box[3] - box[1]) for box in (one, other))
    return shared / (area - shared)


def by_the_paper(anchors, levels, objects, candidates=9):
    """Algorithm 1 of the ATSS paper in plain loops: for each anchor the object it is for, or None."""
    chosen = [(None, 0.0)] * len(anchors)
    for number, box in enumerate(objects):
        centre = [(box[0] + box[2]) / 2, (box[1] + box[3]) / 2]
        away = [math.dist(centre, [(a[0] + a[2]) / 2, (a[1] + a[3]) / 2]) for a in anchors]
        near, start = [], 0
        for size in levels:
            near += sorted(range(start, start + size), key=away.__getitem__)[:candidates]
            start += size
        overlaps = [overlap(anchors[place], box) for place in near]
        mean = sum(overlaps) / len(overlaps)
        spread = math.sqrt(sum((value - mean) ** 2 for value in overlaps) / (len(overlaps) - 1))
        for place, value in zip(near, overlaps, strict=True):
            x, y = ((anchors[place][side] + anchors[place][side + 2]) / 2 for side in (0, 1))
            inside = box[0] < x < box[2] and box[1] < y < box[3]
            if value >= mean + spread and inside and value > chosen[place][1]:
                chosen[place] = (number, value)
    return [number for number, _ in chosen]


@pytest.mark.parametrize("seed", range(6))
def test_assignment_is_that_of_the_paper(seed):
    random = torch.Generator().manual_seed(seed)
    grid = make_anchors((96, 128), (8, 16, 32), scale=3)
    low = torch.rand(3, 5, 2, generator=random) * 80
    # Odd places, so that no two anchors are equally far from an object.
    corners = torch.cat([low, low + 6 + 50 * torch.rand(3, 5, 2, generator=random)], 2)
    mask = torch.rand(3, 5, generator=random) < 0.8
    found = assign_anchors(grid, corners, mask)
    missed = 0
    for image in range(3):
        own = corners[image][mask[image]].tolist()
        names = mask[image].nonzero().squeeze(1).tolist()
        expected = by_the_paper(grid.corners.tolist(), grid.levels, own)
        got = [
            int(item) if positive else None
            for item, positive in zip(found.object[image], found.positive[image], strict=True)
        ]
        assert got == [None if number is None else names[number] for number in expected]
        missed += len(set(range(len(own))) - set(expected))
    assert found.unmatched == missed
    assert bool(found.counted.all())


def test_other_images_and_the_width_of_the_padding_change_nothing():
    grid = make_anchors((64, 64), (8, 16), scale=2)
    box = torch.tensor([[[10.0, 12.0, 33.0, 30.0]]])
    alone = assign_anchors(grid, box, torch.tensor([[True]]))
    wide = torch.cat([box, torch.rand(1, 4, 4) * 60], 1)
    padded = assign_anchors(grid, torch.cat([wide, wide + 1]), torch.tensor([[True] + [False] * 4] * 2))
    assert torch.equal(alone.positive[0], padded.positive[0])
    assert int(alone.positive.sum()) > 0


def test_anchors_on_ignored_objects_do_not_count():
    grid = make_anchors((64, 64), (8,), scale=2)
    corners = torch.tensor([[[0.0, 0.0, 32.0, 32.0], [40.0, 40.0, 60.0, 60.0]]])
    mask, ignored = torch.tensor([[True, True]]), torch.tensor([[True, False]])
    found = assign_anchors(grid, corners, mask, ignored)
    on_it = [overlap(box, (0, 0, 32, 32)) for box in grid.corners.tolist()]
    half = [
        max(0, min(b[2], 32) - max(b[0], 0)) * max(0, min(b[3], 32) - max(b[1], 0)) >= 128
        for b in grid.corners.tolist()
    ]
    assert (~found.counted[0]).tolist() == half
    assert any(half)
    assert max(on_it) > 0.2
    assert set(found.object[found.positive].tolist()) == {1}
    assert found.unmatched == 0


def test_no_objects_at_all():
    grid = make_anchors((32, 32), (8,))
    found = assign_anchors(grid, torch.zeros(2, 0, 4), torch.zeros(2, 0, dtype=torch.bool))
    assert not found.positive.any()
    assert found.counted.all()
    assert found.unmatched == 0


def test_boxes_move_as_in_torchvision():
    coder = torchvision.models.detection._utils.BoxCoder((1.0, 1.0, 1.0, 1.0))
    grid = make_anchors((64, 96), (8, 16), scale=3).corners
    deltas = torch.randn(len(grid), 4, generator=torch.Generator().manual_seed(0)) * 3
    torch.testing.assert_close(moved(grid, deltas), coder.decode_single(deltas, grid), rtol=1e-5, atol=1e-3)


def test_the_usual_anchors_of_a_picture_of_512_pixels():
    strides = (8, 16, 32, 64, 128)
    assert sum(make_anchors((512, 512), strides, scale=4, per_cell=3, ratios=(0.5, 1.0, 2.0)).levels) == 49_104
    assert sum(make_anchors((512, 512), strides).levels) == 5_456


@pytest.mark.parametrize("backbone, anchors", [("conv", 126), ("resnet18", 129)])
def test_outputs_belong_to_the_anchors(backbone, anchors):
    torch.manual_seed(0)
    detector = RetinaNetDetector(3, (64, 96), backbone=backbone, channels=16, scale=2)
    found = detector(torch.rand(2, 3, 64, 96))
    assert found.shape == (2, anchors, 7)
    assert detector.anchors.shape == (anchors, 4)
    # All scores begin at the logit of the prior.
    assert found[..., :3].mean().item() == pytest.approx(math.log(0.01 / 0.99), abs=0.2)
    assert "anchors" not in detector.state_dict()


@pytest.mark.parametrize("levels, anchors", [(3, 126), (4, 128), (5, 129)])
def test_a_resnet_has_three_to_five_levels_all_of_which_learn(levels, anchors):
    torch.manual_seed(0)
    detector = RetinaNetDetector(3, (64, 96), backbone="resnet18", channels=16, scale=2, levels=levels)
    found = detector(torch.rand(2, 3, 64, 96))
    assert found.shape[1] == len(detector.anchors) == anchors
    found.sum().backward()
    body = [name for name, each in detector.named_parameters() if each.grad is None]
    assert body == []


def test_a_resnet_starts_from_a_file(tmp_path):
    torch.manual_seed(1)
    network = torchvision.models.resnet18()
    torch.save(network.state_dict(), tmp_path / "weights.pt")
    detector = RetinaNetDetector(
        2, (64, 64), backbone="resnet18", channels=8, weights=tmp_path / "weights.pt", frozen_batch_norm=True
    )
    body = detector.backbone.body.state_dict()
    assert torch.equal(body["layer3.0.conv1.weight"], network.state_dict()["layer3.0.conv1.weight"])


@pytest.mark.parametrize("frozen", [False, True])
def test_weights_may_be_loaded_later(tmp_path, frozen):
    torch.save(torchvision.models.resnet18().state_dict(), tmp_path / "weights.pt")
    options = {"backbone": "resnet18", "channels": 8, "frozen_batch_norm": frozen}
    torch.manual_seed(0)
    at_once = RetinaNetDetector(2, (64, 64), weights=tmp_path / "weights.pt", **options).state_dict()
    torch.manual_seed(0)
    later = RetinaNetDetector(2, (64, 64), **options)
    later.load(tmp_path / "weights.pt")
    assert all(torch.equal(value, at_once[name]) for name, value in later.state_dict().items())


@pytest.mark.parametrize(
    "options, message",
    [
        ({"backbone": "resnet34"}, "backbone: unknown word 'resnet34'"),
        ({"channels": 20}, "channels: expected a multiple of 8, got 20"),
        ({"weights": "imagenet"}, "backbone: expected a ResNet with weights"),
        ({"frozen_batch_norm": True}, "backbone: expected a ResNet with frozen_batch_norm, got conv"),
        ({"scale": 0}, "scale: expected a finite number > 0"),
    ],
)
def test_wrong_options_are_named(options, message):
    with pytest.raises(ValueError, match=message):
        RetinaNetDetector(2, (64, 64), **options)


def test_without_torchvision_it_says_how_to_get_it(monkeypatch):
    monkeypatch.setitem(sys.modules, "torchvision", None)
    with pytest.raises(ModuleNotFoundError, match=r"RetinaNet needs torchvision: pip install 'rankwise\[vision\]'"):
        RetinaNetDetector(2, (64, 64))
