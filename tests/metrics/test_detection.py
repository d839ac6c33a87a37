"""Average precision of boxes: the numbers of pycocotools, whatever is asked of it; kind to empty input."""

from __future__ import annotations

import contextlib
import io

import pytest
import torch

from rankwise.metrics import BoxTable, box_thresholds, compare, evaluate_boxes
from rankwise.metrics.detection import BOX_METRICS

COCO_PLACES = dict(zip(("ap", "ap50", "ap75", "ap-small", "ap-medium", "ap-large"), range(6), strict=True))
CLASSES = ("a", "b", "c")


def make_boxes(seed, images=6, scale=160.0, crowds=True, ties=False):
    """True boxes, and found ones of which some lie near true ones; class "c" may be rare."""
    random = torch.Generator().manual_seed(seed)

    def draw(count):
        low = torch.rand(count, 2, generator=random) * scale
        side = torch.rand(count, 2, generator=random) * scale * torch.rand(count, 1, generator=random) + 2
        return torch.cat([low, low + side], 1).round()

    true_count = int(torch.randint(1, 40, (1,), generator=random))
    truth = BoxTable(
        torch.randint(0, images, (true_count,), generator=random),
        torch.randint(0, 3, (true_count,), generator=random).clamp_max(int(seed % 3) + 1 - 1 if seed % 4 == 0 else 2),
        draw(true_count),
        ignored=torch.rand(true_count, generator=random) < (0.2 if crowds else 0),
    )
    near = torch.randint(0, true_count, (60,), generator=random)
    shaken = truth.corners[near] + (torch.randn(60, 4, generator=random) * 6).round()
    shaken[:, 2:] = torch.maximum(shaken[:, 2:], shaken[:, :2] + 1)
    corners = torch.cat([shaken, draw(60)])
    image = torch.cat([truth.image[near], torch.randint(0, images, (60,), generator=random)])
    label = torch.cat([truth.label[near], torch.randint(0, 3, (60,), generator=random)])
    score = torch.rand(120, generator=random)
    return BoxTable(image, label, corners, (score * 8).round() / 8 if ties else score), truth


def by_pycocotools(found, truth, images, most=100):
    """Six means of COCOeval, -1 where there is nothing to be found."""
    coco = pytest.importorskip("pycocotools.coco")
    cocoeval = pytest.importorskip("pycocotools.cocoeval")

    def record(table, place):
        left, top, right, bottom = table.corners[place].double().tolist()
        box = [left, top, right - left, bottom - top]
        return {"image_id": int(table.image[place]) + 1, "category_id": int(table.label[place]) + 1, "bbox": box}

    with contextlib.redirect_stdout(io.StringIO()):
        real = coco.COCO()
        real.dataset = {
            "images": [{"id": number + 1} for number in range(images)],
            "categories": [{"id": number + 1} for number in range(len(CLASSES))],
            "annotations": [
                {**(box := record(truth, place)), "id": place + 1, "area": box["bbox"][2] * box["bbox"][3],
                 "iscrowd": int(truth.ignored[place])}
                for place in range(len(truth.image))
            ],
        }  # fmt: skip
        real.createIndex()
        seen = real.loadRes(
            [{**record(found, place), "score": float(found.score[place])} for place in range(len(found.image))]
        )
        judge = cocoeval.COCOeval(real, seen, "bbox")
        judge.params.maxDets = [1, 2, most]
        judge.evaluate()
        judge.accumulate()
    precision = torch.from_numpy(judge.eval["precision"])[:, :, :, :, 2]  # overlap, recall, class, area

    def mean(values):
        return float(values[values > -1].mean()) if bool((values > -1).any()) else float("nan")

    return [
        mean(precision[..., 0]), mean(precision[0, ..., 0]), mean(precision[5, ..., 0]),
        mean(precision[..., 1]), mean(precision[..., 2]), mean(precision[..., 3]),
    ]  # fmt: skip


@pytest.mark.parametrize("seed", [*range(24), *(pytest.param(n, marks=pytest.mark.slow) for n in range(24, 524))])
@pytest.mark.filterwarnings("ignore")
def test_equal_to_pycocotools(seed):
    found, truth = make_boxes(seed, ties=seed % 2 == 1, crowds=seed % 3 > 0)
    most = 5 if seed % 5 == 0 else 100
    expected = by_pycocotools(found, truth, 6, most)
    got = evaluate_boxes(found, truth, list(BOX_METRICS), images=6, classes=CLASSES, most=most, bootstrap=0).means
    for name, place in COCO_PLACES.items():
        assert got[name] == pytest.approx(expected[place], abs=1e-12, nan_ok=True), name


def test_an_image_alone_is_a_data_set_of_one_image():
    found, truth = make_boxes(3)
    values = evaluate_boxes(found, truth, images=6, classes=CLASSES, bootstrap=0).per_query["ap per image"]
    for image in range(6):
        own, true = found.image == image, truth.image == image
        alone = evaluate_boxes(
            BoxTable(torch.zeros_like(found.image[own]), found.label[own], found.corners[own], found.score[own]),
            BoxTable(
                torch.zeros_like(truth.image[true]), truth.label[true], truth.corners[true], None, truth.ignored[true]
            ),
            images=1,
            classes=CLASSES,
            bootstrap=0,
        )
        assert values[image].item() == pytest.approx(alone.means["ap"], abs=1e-12, nan_ok=True)


def test_a_weight_of_two_is_the_image_twice():
    """What the intervals are made of: a replicate in which an image is drawn twice."""
    from rankwise.metrics.detection import _Matched

    found, truth = make_boxes(5)
    weights = torch.tensor([[2.0, 0, 1, 1, 1, 3]], dtype=torch.float64)
    weighted = _Matched(found, truth, 6, 3, (0.0, 1e10), 100).per_class(range(10), weights)[0]
    copies = torch.tensor([0, 0, 2, 3, 4, 5, 5, 5])

    def repeated(table):
        places = [(table.image == image).nonzero().squeeze(1) for image in copies.tolist()]
        image = torch.cat([torch.full_like(rows, number) for number, rows in enumerate(places)])
        rows = torch.cat(places)
        return BoxTable(image, *(None if each is None else each[rows] for each in table[1:]))

    copied = _Matched(repeated(found), repeated(truth), len(copies), 3, (0.0, 1e10), 100)
    expected = copied.per_class(range(10), torch.ones(1, len(copies), dtype=torch.float64))[0]
    torch.testing.assert_close(weighted, expected, equal_nan=True)


def test_intervals_hold_the_value_and_narrow_with_more_images():
    widths = []
    for images in (10, 90):
        tables = [make_boxes(seed, images=1, crowds=False) for seed in range(images)]
        found, truth = (
            BoxTable(
                torch.cat([torch.full_like(pair[side].image, number) for number, pair in enumerate(tables)]),
                *(torch.cat([pair[side][field] for pair in tables]) for field in (1, 2)),
                torch.cat([pair[0].score for pair in tables]) if side == 0 else None,
            )
            for side in (0, 1)
        )
        result = evaluate_boxes(found, truth, images=images, classes=CLASSES, bootstrap=200)
        low, high = result.intervals["ap"]
        assert low < result.means["ap"] < high
        widths.append(high - low)
    assert widths[1] < 0.6 * widths[0]


def test_a_strictly_increasing_transform_of_the_scores_changes_nothing():
    found, truth = make_boxes(8)
    before = evaluate_boxes(found, truth, images=6, classes=CLASSES, bootstrap=0).means
    moved = found._replace(score=torch.exp(5 * found.score))
    after = evaluate_boxes(moved, truth, images=6, classes=CLASSES, bootstrap=0).means
    assert before == pytest.approx(after, abs=0, nan_ok=True)


def test_nothing_found_is_zero_and_nothing_to_be_found_has_no_value():
    found, truth = make_boxes(1, crowds=False)
    nothing = BoxTable(*(each[:0] for each in found[:4]))
    assert evaluate_boxes(nothing, truth, images=6, classes=CLASSES, bootstrap=20).means["ap"] == 0
    none_true = BoxTable(*(None if each is None else each[:0] for each in truth))
    result = evaluate_boxes(found, none_true, images=6, classes=CLASSES, bootstrap=20)
    assert result.means["ap"] != result.means["ap"]
    assert result.skipped["ap"] == 3
    assert "ap" not in result.intervals


def test_perfect_boxes_have_an_average_precision_of_one_and_can_be_compared_image_by_image():
    found, truth = make_boxes(2, crowds=False)
    perfect = BoxTable(truth.image, truth.label, truth.corners, torch.linspace(0, 1, len(truth.image)))
    best, other = (evaluate_boxes(each, truth, images=6, classes=CLASSES) for each in (perfect, found))
    assert best.means["ap"] == pytest.approx(1)
    assert best.means["ap a"] == pytest.approx(1)
    assert best.intervals["ap"] == pytest.approx((1, 1))
    assert compare(best, other, metric="ap per image").difference > 0
    assert "as COCO has it" in str(best)


def test_wrong_input_is_named():
    found, truth = make_boxes(0)
    with pytest.raises(ValueError, match="unknown metric of boxes 'ap51'; did you mean 'ap75'"):
        evaluate_boxes(found, truth, ["ap51"], images=6, classes=CLASSES)
    broken = found._replace(score=found.score.index_fill(0, torch.tensor([3]), torch.nan))
    with pytest.raises(ValueError, match="score: expected finite numbers, got 1 NaN"):
        evaluate_boxes(broken, truth, images=6, classes=CLASSES)


def test_thresholds_are_where_f1_is_best():
    found, truth = make_boxes(4, crowds=False)
    best = box_thresholds(found, truth, images=6, classes=3)
    for label in range(3):
        own, true = found.label == label, truth.label == label
        counted = int(true.sum())
        if not counted:
            assert best[label].item() == float("inf")
            continue
        values = {}
        for threshold in found.score[own].double().tolist():
            kept = found.take(own & (found.score >= threshold))
            # Each true box is found once at most, by the surest first.
            hits, taken = 0, set()
            for place in torch.argsort(kept.score, descending=True).tolist():
                overlaps = {
                    number: overlap(kept.corners[place].tolist(), truth.corners[number].tolist())
                    for number in true.nonzero().squeeze(1).tolist()
                    if truth.image[number] == kept.image[place] and number not in taken
                }
                if overlaps and max(overlaps.values()) >= 0.5:
                    hits += 1
                    taken.add(max(overlaps, key=overlaps.get))
            values[threshold] = 2 * hits / (len(kept.image) + counted)
        if max(values.values()) == 0:
            assert best[label].item() == float("inf")
        else:
            assert values[best[label].item()] == max(values.values())


def overlap(one, other):
    width = min(one[2], other[2]) - max(one[0], other[0])
    height = min(one[3], other[3]) - max(one[1], other[1])
    shared = max(0.0, width) * max(0.0, height)
    area = sum((box[2] - box[0]) * (box[3] - box[1]) for box in (one, other))
    return shared / (area - shared)


def test_every_value_has_a_definition_an_interval_and_a_number_of_classes_left_out():
    found, truth = make_boxes(4)
    result = evaluate_boxes(found, truth, images=6, classes=CLASSES, bootstrap=20)
    assert result.definitions.keys() == result.means.keys() | result.per_query.keys()
    assert result.skipped.keys() == result.definitions.keys()
    assert result.intervals.keys() <= result.means.keys()
    for word in CLASSES:
        assert repr(word) in result.definitions[f"ap {word}"]


def test_boxes_of_less_than_a_pixel_are_small():
    corners = torch.tensor([[5.0, 5.0, 5.5, 5.5]])
    truth = BoxTable(torch.zeros(1, dtype=torch.int64), torch.zeros(1, dtype=torch.int64), corners)
    found = BoxTable(truth.image, truth.label, corners, torch.ones(1))
    result = evaluate_boxes(found, truth, ["ap-small", "ap-medium"], classes=("a",), images=1)
    assert result.means["ap-small"] == pytest.approx(1)
    assert result.means["ap-medium"] != result.means["ap-medium"]
