"""Boxes in the forms of VOC and COCO: read as they are; what cannot be right is named with its file and place."""

from __future__ import annotations

import json

import numpy as np
import pytest
import torch

from rankwise.data import DetectionPart, DetectionSchema, box_augmentation, cut_boxes, read_boxes, read_coco, read_voc
from workers.boxed_pictures import CLASSES, HEIGHT, WIDTH, annotation, make_part, write_coco, write_voc

pytest.importorskip("PIL")


@pytest.fixture
def voc(tmp_path):
    write_voc(tmp_path / "scenes", count=8)
    return tmp_path / "scenes"


@pytest.fixture
def coco(tmp_path):
    write_coco(tmp_path / "coco", count=8)
    return tmp_path / "coco" / "boxes.json"


def assert_same_images(left, right):
    for one, other in zip(left.images, right.images, strict=True):
        assert one.file.name == other.file.name
        assert torch.equal(one.corners, other.corners)
        assert torch.equal(one.labels, other.labels)


def test_both_forms_hold_the_same_boxes(tmp_path, coco):
    _, objects = write_voc(tmp_path / "plain", count=8, lists=False)
    first, second = read_boxes(tmp_path / "plain"), read_boxes(coco)
    assert first.classes == second.classes == CLASSES
    assert first.parts is None
    assert_same_images(first, second)
    for image, own in zip(first.images, objects, strict=True):
        assert image.corners.tolist() == [list(map(float, corners)) for _, corners in own]
        assert image.labels.tolist() == [label for label, _ in own]
        assert (image.height, image.width) == (HEIGHT, WIDTH)


def test_the_lists_of_a_folder_name_the_parts(voc):
    found = read_voc(voc)
    assert found.parts == ("train",) * 4 + ("validation",) * 2 + ("test",) * 2
    listed = read_voc(voc / "ImageSets" / "Main" / "val.txt", classes=CLASSES)
    assert [image.file for image in listed.images] == [image.file for image in found.images[4:6]]


def test_boxes_move_with_the_image_that_is_squeezed(voc):
    part = DetectionPart.of(read_voc(voc), (96, 64), cache=True)
    batch = part.__getitems__([0, 3])
    assert batch.features.shape == (2, 3, 96, 64)
    own = part.truth(3).corners
    count = len(own)
    torch.testing.assert_close(batch.boxes.corners[1, :count], own * torch.tensor([1.0, 2.0, 1.0, 2.0]))
    assert batch.boxes.mask[1].tolist() == [True] * count + [False] * (batch.boxes.mask.shape[1] - count)
    assert torch.equal(batch.labels[1, :count], part.truth(3).labels)
    # What is in a box is what was drawn there: squares bright, bars dark; the last one drawn is covered by none.
    left, top, right, bottom = batch.boxes.corners[1, count - 1].long().tolist()
    inside = batch.features[1, :, top + 2 : bottom - 2, left + 2 : right - 2].mean()
    assert inside > 0.8 if batch.labels[1, count - 1] == 1 else inside < 0.2


def test_boxes_stay_in_proportion_and_the_rest_is_black(voc):
    part = DetectionPart.of(read_voc(voc), (96, 96), fit="keep")
    height, width = part.truth(3).height, part.truth(3).width
    assert (height, width) == (48, 64)
    batch, own = part[3], part.truth(3).corners
    assert part.inside((height, width)) == (72, 96)
    torch.testing.assert_close(batch.boxes.corners[0], own * 1.5)
    assert batch.features[0, :, 72:].abs().max() == 0
    assert batch.features[0, :, :72].max() > 0
    assert part.inside((200, 100)) == (96, 48)


@pytest.mark.parametrize("name", ["flip", "flip-both", "ssd"])
def test_what_was_in_a_box_is_in_it_after_an_augmentation(name):
    pytest.importorskip("torchvision")
    part, view = make_part(12), box_augmentation(name)
    torch.manual_seed(0)
    moved = 0
    for _ in range(4):
        batch = part.batch(range(12), view)
        plain = part.__getitems__(range(12))
        moved += int((batch.features != plain.features).flatten(1).any(1).sum())
        if name == "ssd":  # colours change, too
            continue
        for image, corners, labels, mask in zip(
            batch.features, batch.boxes.corners, batch.labels, batch.boxes.mask, strict=True
        ):
            for (left, top, right, bottom), label in zip(
                corners[mask].round().long().tolist(), labels[mask], strict=True
            ):
                own = image[:, top:bottom, left:right]
                # The last object drawn may cover others; the corners of at least the object's colour are there.
                assert (own > 0.9).any() if label == 1 else (own < 0.1).any()
    assert moved > 10
    if name == "ssd":
        size = torch.tensor([WIDTH, HEIGHT, WIDTH, HEIGHT])
        corners = batch.boxes.corners[batch.boxes.mask]
        assert bool(((corners >= 0) & (corners <= size)).all())
        assert bool((corners[:, 2:] > corners[:, :2]).all())


def test_an_augmentation_keeps_the_labels_with_their_boxes():
    pytest.importorskip("torchvision")
    part, view = make_part(1, seed=4), box_augmentation("ssd")
    areas = {12 * 12: 1, 10 * 22: 0}
    for seed in range(20):
        torch.manual_seed(seed)
        _, corners, left = view(part.source.image(0), part.truth(0).corners)
        assert len(corners) == len(left)
        whole = (corners[:, 2:] - corners[:, :2]).prod(1).round().long().tolist()
        for area, place in zip(whole, left.tolist(), strict=True):
            if area in areas:
                assert areas[area] == int(part.truth(0).labels[place])


def test_shares_are_cut_without_overlap():
    part = make_part(20)
    pieces = cut_boxes(part, [0.1, 0.25], seed=3)
    assert [len(piece) for piece in pieces] == [13, 2, 5]
    assert sorted(torch.cat([piece.rows for piece in pieces]).tolist()) == list(range(20))
    with pytest.raises(ValueError, match="shares: expected enough images for every part, got 2"):
        cut_boxes(make_part(2), [0.3, 0.3], seed=0)
    for shares in ([-0.1, 0.3], [0.0, 0.3], [0.5, 0.5]):
        with pytest.raises(ValueError, match="shares: expected numbers between 0 and 1 of less than 1 in all"):
            cut_boxes(part, shares, seed=0)


def test_a_bad_box_is_named_or_left_out(voc):
    file = voc / "Annotations" / "scene-002.xml"
    file.write_text(annotation("scene-002", [(0, (3, 4, 10, 12)), (1, (20, 9, 20, 9))]))
    with pytest.raises(ValueError, match=r"scene-002.xml, object 2: expected a box with an area inside"):
        read_voc(voc)
    found = read_voc(voc, bad_boxes="skip")
    assert len(found.images[2].labels) == 1
    assert len(found.left_out) == 1
    file.write_text(annotation("scene-002", [(0, (-3, 40, 10, 52))]))
    assert read_voc(voc).images[2].corners.tolist() == [[0, 40, 10, 48]]


def test_an_image_without_objects_is_kept(voc):
    (voc / "Annotations" / "scene-000.xml").write_text(annotation("scene-000", []))
    part = DetectionPart.of(read_voc(voc), (48, 64))
    batch = part.__getitems__([0, 1])
    assert not batch.boxes.mask[0].any()
    assert part.__getitems__([0]).boxes.corners.shape == (1, 0, 4)


def test_difficult_objects_and_crowds_are_ignored(voc, coco):
    file = voc / "Annotations" / "scene-000.xml"
    file.write_text(file.read_text().replace("<difficult>0</difficult>", "<difficult>1</difficult>", 1))
    assert read_voc(voc).images[0].ignored.tolist()[0] is True
    content = json.loads(coco.read_text())
    content["annotations"][0]["iscrowd"] = 1
    coco.write_text(json.dumps(content))
    assert read_coco(coco).images[0].ignored.tolist()[0] is True


BOMB = """<?xml version="1.0"?><!DOCTYPE lolz [<!ENTITY lol "lol"><!ENTITY lol2 "&lol;&lol;&lol;&lol;&lol;&lol;">]>
<annotation><filename>&lol2;</filename></annotation>"""
OUTSIDE = '<!DOCTYPE a [<!ENTITY x SYSTEM "file:///etc/hostname">]><annotation><filename>&x;</filename></annotation>'


@pytest.mark.parametrize(
    "text, message",
    [
        (BOMB, "expected annotations alone, got a document type or an entity"),
        (OUTSIDE, "expected annotations alone, got a document type or an entity"),
        ("<annotation><size>", r"expected XML that can be read \(no element found"),
        ("<objects/>", "expected <annotation>, got <objects>"),
        ("<annotation/>", "expected <size> with <width> and <height>, got none"),
        ("<annotation><size><width>9</width></size></annotation>", "expected a number as <height> of <size>, got None"),
        (annotation("scene-003", [], size=(0, 9)), "expected a size of at least 1 x 1 pixels, got 9 x 0"),
        (annotation("scene-003", [(0, (1, 2, "x", 4))]), "object 1: expected a number as <xmax> of <bndbox>, got 'x'"),
        (annotation("scene-003", [(0, (1, 2, "nan", 4))]), "object 1: expected a number as <xmax>"),
        (annotation("scene-003", [(0, (1, 2, 3, 4))]).replace("<name>bar</name>", ""), "object 1: expected <name> and"),
    ],
)
def test_a_wrong_annotation_is_named(voc, text, message):
    (voc / "Annotations" / "scene-003.xml").write_text(text)
    with pytest.raises(ValueError, match=r"scene-003.xml.*" + message):
        read_voc(voc)


def test_an_entity_in_another_encoding_is_not_read_either(voc):
    (voc / "Annotations" / "scene-003.xml").write_bytes(BOMB.replace("?>", ' encoding="utf-16"?>').encode("utf-16"))
    with pytest.raises(ValueError, match="expected text in UTF-8, got UTF-16"):
        read_voc(voc)
    (voc / "Annotations" / "scene-003.xml").write_bytes(BOMB.encode("utf-16-le"))
    with pytest.raises(ValueError, match=r"scene-003.xml: expected XML in UTF-8, got a zero byte"):
        read_voc(voc)


def test_what_is_missing_or_twice_is_named(voc):
    with pytest.raises(ValueError, match="unknown class 'bar'"):
        read_voc(voc, classes=["square"])
    lists = voc / "ImageSets" / "Main"
    (lists / "val.txt").write_text("scene-004\nscene-000\n")
    with pytest.raises(ValueError, match=r"val.txt: expected images of no other list, got 'scene-000' of train"):
        read_voc(voc)
    (lists / "val.txt").write_text("scene-004\nscene-004\n")
    with pytest.raises(ValueError, match=r"val.txt: expected every image once, got 'scene-004' twice"):
        read_voc(lists / "val.txt")
    (lists / "val.txt").write_text("../scene-004\n")
    with pytest.raises(ValueError, match=r"val.txt, line 1: expected the name of an image, without a folder"):
        read_voc(lists / "val.txt")
    (lists / "val.txt").write_text("scene-999\n")
    with pytest.raises(FileNotFoundError, match=r"scene-999.xml: no such file of annotations"):
        read_voc(voc)
    (voc / "JPEGImages" / "scene-001.png").unlink()
    (lists / "val.txt").write_text("scene-004\n")
    with pytest.raises(FileNotFoundError, match=r"scene-001.xml: expected its image 'scene-001.png' in"):
        read_voc(voc)
    with pytest.raises(ValueError, match="expected a folder Annotations in it"):
        read_voc(voc / "JPEGImages")
    with pytest.raises(FileNotFoundError, match="no such file or folder"):
        read_boxes(voc / "nothing")
    with pytest.raises(ValueError, match="bad_boxes: unknown word 'drop'"):
        read_voc(voc, bad_boxes="drop")


def test_an_image_of_another_shape_than_its_annotation_is_named(voc):
    (voc / "Annotations" / "scene-000.xml").write_text(annotation("scene-000", [], size=(64, 64)))
    part = DetectionPart.of(read_voc(voc), (48, 64))
    with pytest.raises(ValueError, match=r"scene-000.png: expected an image of 64 x 64 pixels as its annotation says"):
        part[0]


def changed(content, change):
    change(content)
    return json.dumps(content)


@pytest.mark.parametrize(
    "change, message",
    [
        (lambda c: c.pop("categories"), "expected a list 'categories', in the form of COCO"),
        (lambda c: c["annotations"][1].update(bbox=[1, 2, 3]), r"annotation 1: expected left, top, width and height"),
        (lambda c: c["annotations"][1].update(bbox=[1, 2, 0, 4]), "annotation 1: expected a box with an area"),
        (lambda c: c["annotations"][1].update(image_id=5), "annotation 1: expected the id of an image, got 5"),
        (lambda c: c["annotations"][1].update(category_id=5), "annotation 1: expected the id of a category, got 5"),
        (lambda c: c["annotations"][1].pop("bbox"), "annotation 1: expected image_id, category_id and bbox"),
        (lambda c: c["images"][1].update(id=100), "image 1: expected an id of its own, got 100 again"),
        (lambda c: c["images"][1].update(height="9"), "image 1: expected id, file_name, height and width"),
        (lambda c: c["images"][1].update(file_name="../x.png"), "image 1: expected a file_name inside the folder"),
        (lambda c: c["categories"][0].pop("name"), "category 0: expected an id and a name"),
    ],
)
def test_a_wrong_json_is_named(coco, change, message):
    coco.write_text(changed(json.loads(coco.read_text()), change))
    with pytest.raises(ValueError, match=r"boxes.json.*" + message):
        read_coco(coco)


def test_json_that_cannot_be_read_and_images_that_are_not_there_are_named(coco):
    (coco.parent / "images" / "scene-004.png").rename(coco.parent / "images" / "elsewhere.png")
    with pytest.raises(FileNotFoundError, match=r"image 104: expected the file .*scene-004.png, got none there"):
        read_coco(coco)
    (coco.parent / "images").rename(coco.parent / "moved")
    with pytest.raises(FileNotFoundError, match=r"expected the image 'scene-000.png' in one of .*; say where"):
        read_coco(coco)
    (coco.parent / "moved" / "elsewhere.png").rename(coco.parent / "moved" / "scene-004.png")
    assert len(read_boxes(coco, images=coco.parent / "moved").images) == 8
    coco.write_text(coco.read_text()[:100])
    with pytest.raises(ValueError, match=r"boxes.json: expected JSON that can be read"):
        read_coco(coco)


@pytest.mark.realdata
def test_bccd_is_as_its_readme_says(real_data):
    folder = real_data("bccd") / "BCCD"
    with pytest.raises(ValueError, match="expected a box with an area"):
        read_voc(folder)
    found = read_voc(folder, bad_boxes="skip")
    assert found.classes == ("Platelets", "RBC", "WBC")
    assert [found.parts.count(part) for part in ("train", "validation", "test")] == [205, 87, 72]
    labels = torch.cat([image.labels for image in found.images])
    assert len(found.left_out) == 2
    assert (torch.bincount(labels).sum() + len(found.left_out)).item() == 361 + 4155 + 372


def test_a_schema_reads_the_part_that_lists_name_or_all(tmp_path):
    write_voc(tmp_path / "listed", count=8)
    write_voc(tmp_path / "plain", count=8, lists=False)
    schema = DetectionSchema(CLASSES, 24, 32)
    assert [len(schema.read(tmp_path / "listed", part=name)) for name in ("train", "validation", "test")] == [4, 2, 2]
    assert len(schema.read(tmp_path / "plain")) == 8
    assert schema.read(tmp_path / "plain")[0].features.shape == (1, 3, 24, 32)


def test_images_without_boxes_have_the_size_of_their_files(tmp_path):
    write_voc(tmp_path / "scenes", count=3)
    schema = DetectionSchema(CLASSES, 24, 32, resize=20)
    labelled = schema.read(tmp_path / "scenes", part="train")
    images = tmp_path / "scenes" / "JPEGImages"
    for source in (images, sorted(images.iterdir()), sorted(images.iterdir())[0], np.zeros((2, 48, 64, 3), np.uint8)):
        part = schema.read(source, labels="optional")
        assert not part.annotated
        assert (part.truth(0).height, part.truth(0).width) == (48, 64)
        assert part.picture(0).shape == (3, 20, 27)
        batch = part[0]
        assert batch.features.shape == (1, 3, 24, 32)
        assert batch.boxes.corners.shape == (1, 0, 4)
        with pytest.raises(ValueError, match="expected"):
            schema.read(source)
    first = schema.read(images, labels="optional")
    assert torch.equal(first[0].features, labelled[0].features)


@pytest.mark.parametrize(
    "changes, message",
    [
        ({"classes": ["bar", "bar"]}, "classes: expected different names"),
        ({"classes": [1, 2]}, "classes: expected different names"),
        ({"height": 0}, "height: expected"),
        ({"resize": 0}, "resize: expected"),
        ({"bad_boxes": "drop"}, "bad_boxes: unknown word 'drop'"),
    ],
)
def test_a_changed_schema_is_refused(changes, message):
    saved = DetectionSchema(CLASSES, 24, 32).to_json()
    assert DetectionSchema.from_saved(saved, {}) == DetectionSchema(CLASSES, 24, 32)
    with pytest.raises(ValueError, match=message):
        DetectionSchema.from_saved({**saved, **changes}, {})
