"""Images: read from folders, tar files, lists and arrays alike, by a schema; cut, thinned out and varied by seed."""

from __future__ import annotations

import json
import sys
import tarfile
from dataclasses import replace

import numpy as np
import pytest
import torch

from rankwise.data import (
    AUGMENTATIONS,
    ArrayImages,
    AugmentedImages,
    DataNote,
    ImagePart,
    ImageSchema,
    augmentation,
    cut_classes,
    cut_images,
    imbalanced,
    read_images,
)
from workers.pictures import make_part, make_pictures, write_folder


def assert_holds(found, images, labels):
    assert torch.equal(found.labels, labels)
    assert len(found.source) == len(images)
    for index in range(0, len(images), 5):
        assert torch.equal(found.source.image(index), images[index])


@pytest.fixture
def folder(tmp_path):
    pytest.importorskip("PIL")
    images, labels = write_folder(tmp_path / "pictures", classes=3, each=4)
    return tmp_path / "pictures", images, labels


def test_a_folder_of_folders(folder):
    path, images, labels = folder
    (path / ".hidden").mkdir()
    (path / "class-00" / "notes.txt").write_text("not an image")
    found = read_images(path, channels=1)
    assert found.classes == ("class-00", "class-01", "class-02")
    assert_holds(found, images, labels)
    assert found.source.image(0).shape == (1, 16, 16)
    assert read_images(path).source.image(0).shape == (3, 16, 16)


@pytest.mark.parametrize("ending", ["tar", "tar.gz", "tar.xz"])
@pytest.mark.parametrize("inside", ["", "train", "./some/where"])
def test_a_tar_file_of_a_folder(folder, ending, inside):
    path, images, labels = folder
    archive = path.parent / f"images.{ending}"
    with tarfile.open(archive, "w:" + ending.removeprefix("tar").removeprefix(".")) as file:
        file.add(path, arcname=inside or ".")
    found = read_images(archive, channels=1)
    assert found.classes == ("class-00", "class-01", "class-02")
    assert_holds(found, images, labels)
    if inside == "train":
        assert_holds(read_images(archive / "train", channels=1), images, labels)
        with pytest.raises(ValueError, match="got no folders"):
            read_images(archive / "test", channels=1)


def test_a_list_of_paths(folder):
    path, images, labels = folder
    files = sorted(path.rglob("*.png"))
    rows = [f"{file.relative_to(path.parent)},{10 - label},{part}" for file, label, part in zip(
        files, labels.tolist(), ["train", "validation", "test"] * 4, strict=True)]  # fmt: skip
    listed = path.parent / "list.csv"
    listed.write_text("\n".join(["path,label,split", *rows]))
    found = read_images(listed, channels=1)
    assert found.classes == ("8", "9", "10")  # as numbers
    assert torch.equal(found.labels, 2 - labels)
    assert found.parts == ("train", "validation", "test") * 4
    assert torch.equal(found.source.image(7), images[7])


@pytest.mark.parametrize(
    "shape, labels", [((12,), (12,)), ((3, 4), (3, 4))], ids=["one row of images", "a row per class"]
)
@pytest.mark.parametrize("channels", [1, 3])
def test_arrays(tmp_path, shape, labels, channels):
    images, classes = make_pictures(classes=3, each=4, channels=channels)
    pixels = images.permute(0, 2, 3, 1).numpy()
    pixels = pixels[..., 0] if channels == 1 else pixels
    np.savez(
        tmp_path / "a.npz", images=pixels.reshape(*shape, *pixels.shape[1:]), labels=classes.numpy().reshape(labels)
    )
    assert_holds(read_images(tmp_path / "a.npz", channels=channels), images, classes)


def test_arrays_of_black_and_white(tmp_path):
    ink = np.zeros((2, 8, 8), dtype=bool)
    ink[0, 2:4] = True
    np.savez(tmp_path / "a.npz", images=ink, labels=[0, 1])
    image = read_images(tmp_path / "a.npz", channels=1).source.image(0)
    assert image.unique().tolist() == [0, 255]
    inverted = read_images(tmp_path / "a.npz", channels=1, invert=True).source.image(0)
    assert torch.equal(inverted, 255 - image)


@pytest.mark.parametrize("form", ["files", "arrays"])
def test_the_shorter_side_is_resized_and_the_middle_taken(form, tmp_path):
    image = np.zeros((20, 40, 3), dtype=np.uint8)
    image[:, 10:30] = (200, 100, 50)  # the middle
    if form == "files":
        pillow = pytest.importorskip("PIL.Image")
        (tmp_path / "set" / "only").mkdir(parents=True)
        pillow.fromarray(image).save(tmp_path / "set" / "only" / "1.png")
        path = tmp_path / "set"
    else:
        np.savez(tmp_path / "set.npz", images=image[None], labels=[0])
        path = tmp_path / "set.npz"
    found = read_images(path, resize=10)
    assert found.source.image(0).shape == (3, 10, 20)
    features = ImagePart.of(found, size=8)[0].features
    assert features.shape == (1, 3, 8, 8)
    torch.testing.assert_close(features[0, :, 4, 4], torch.tensor([200.0, 100.0, 50.0]) / 255)
    with pytest.raises(ValueError, match="size: expected at most the 10 pixels of the shorter side, got 12"):
        ImagePart.of(found, size=12)[0]


def test_grey_and_colour_are_what_pillow_makes_of_them(tmp_path):
    image = pytest.importorskip("PIL.Image")
    pixels, labels = make_pictures(classes=2, each=2, channels=3)
    np.savez(tmp_path / "a.npz", images=pixels.permute(0, 2, 3, 1).numpy(), labels=labels)
    grey = read_images(tmp_path / "a.npz", channels=1).source.image(1)
    theirs = np.array(image.fromarray(pixels[1].permute(1, 2, 0).numpy()).convert("L"))
    assert int((grey[0].int() - torch.from_numpy(theirs).int()).abs().max()) <= 1


def test_a_cache_gives_the_same_images_and_reads_each_once(folder):
    path, images, _ = folder
    found = read_images(path, channels=1, cache=True)
    first = found.source.image(3).clone()
    sorted(path.rglob("*.png"))[3].unlink()
    assert torch.equal(found.source.image(3), first)
    assert torch.equal(first, images[3])


def test_wrong_files_are_named(folder):
    path, *_ = folder
    above = path.parent
    (above / "empty").mkdir()
    (above / "no images").mkdir()
    (above / "no images" / "cats").mkdir()
    (above / "text.npz").write_text("text")
    (above / "cut.tar").write_bytes(b"cut")
    (above / "pictures.zip").write_bytes(b"PK")
    np.savez(above / "named.npz", pictures=np.zeros(3))
    np.savez(above / "floats.npz", images=np.full((3, 4, 4), 200.0), labels=np.zeros(3))
    np.savez(above / "flat.npz", images=np.zeros((3, 4), dtype=np.uint8), labels=np.zeros(3))
    np.savez(above / "short.npz", images=np.zeros((3, 4, 4), dtype=np.uint8), labels=np.zeros(2))
    (above / "columns.csv").write_text("file,class\na,b\n")
    (above / "missing.csv").write_text("path,label\npictures/class-00/0000.png,1\nnot/there.png,2\n")
    (above / "label.csv").write_text("path,label\npictures/class-00/0000.png,\n")
    (above / "split.csv").write_text("path,label,split\npictures/class-00/0000.png,1,tests\n")
    (above / "rows.csv").write_text("path,label\n")
    for name, message in {
        "nowhere": "nowhere: no such file or folder",
        "empty": "expected one folder of images per class, got no folders",
        "no images": "in the folder of every class, got none in 'cats'",
        "text.npz": "text.npz: expected a whole npz file",
        "cut.tar": "cut.tar: expected a whole tar file",
        "pictures.zip": "expected a folder, a tar file, a CSV list or an npz file of images",
        "named.npz": "expected an array 'images', got pictures",
        "floats.npz": "floats.npz: expected pixels of 8 or 16 bits, .* or floating point numbers from 0 to 1, got "
        "float64 from 200 to 200",
        "flat.npz": r"expected images \(N, H, W\) or \(N, H, W, 3\), got uint8 \(3, 4\)",
        "short.npz": r"expected one label per image, got images \(3, 4, 4\) and labels \(2,\)",
        "columns.csv": "columns.csv: expected a column 'path', got file, class",
        "missing.csv": r"missing.csv, line 3: expected the path of an image, got 'not/there.png', which is no file",
        "label.csv": "label.csv, line 2: expected a path and a label, got an empty one",
        "split.csv": "split.csv, line 2: expected one of train, validation, test, gallery as split, got 'tests'",
        "rows.csv": "expected images, got a list without rows",
    }.items():
        with pytest.raises((ValueError, FileNotFoundError), match=message):
            read_images(above / name)


@pytest.mark.parametrize("content", [b"", b"not an image at all", "cut"])
def test_a_file_that_is_no_image_is_named_when_it_is_asked_for(folder, content):
    path, *_ = folder
    file = sorted(path.rglob("*.png"))[1]
    file.write_bytes(file.read_bytes()[:100] if content == "cut" else content)
    part = ImagePart.of(read_images(path))
    part[0]
    with pytest.raises(ValueError, match=r"0001\.png: expected an image that can be read"):
        part.__getitems__([0, 1])


def test_images_of_different_sizes_need_a_size(folder):
    path, *_ = folder
    from PIL import Image

    Image.new("L", (20, 30)).save(path / "class-00" / "0000.png")
    with pytest.raises(ValueError, match="size: expected one size for all images"):
        ImagePart.of(read_images(path)).__getitems__([0, 1])
    assert ImagePart.of(read_images(path), size=16).__getitems__([0, 1]).features.shape == (2, 3, 16, 16)


def test_without_pillow_arrays_are_read_and_files_are_refused_with_advice(folder, monkeypatch):
    path, images, labels = folder
    np.savez(path.parent / "a.npz", images=images[:, 0].numpy(), labels=labels.numpy())
    monkeypatch.setitem(sys.modules, "PIL", None)
    monkeypatch.setitem(sys.modules, "torchvision", None)
    assert_holds(read_images(path.parent / "a.npz", channels=1), images, labels)
    with pytest.raises(ModuleNotFoundError, match=r"reading images needs PIL: pip install 'rankwise\[vision\]'"):
        read_images(path)
    assert augmentation("none", 16) is None
    assert augmentation("shift", 16)(torch.zeros(1, 16, 16, dtype=torch.uint8)).shape == (1, 16, 16)
    with pytest.raises(ModuleNotFoundError, match=r"'shift-flip' needs torchvision: pip install 'rankwise\[vision\]'"):
        augmentation("shift-flip", 16)


def encode(folder, name, pixels):
    """Write a picture as Pillow does; PGM as its definition says, because Pillow writes 8 bits only."""
    from PIL import Image

    path = folder / name
    if path.suffix == ".pgm":
        path.write_bytes(b"P5 %d %d 65535\n" % pixels.shape[::-1] + pixels.astype(">u2").tobytes())
    else:
        Image.fromarray(pixels).save(path)
    return path


RAMP = np.linspace(0, 65535, 64).astype(np.uint16).reshape(8, 8)
WIDE = {
    "16-bit PNG": ("a.png", RAMP, RAMP / 257),
    "16-bit TIFF": ("a.tif", RAMP, RAMP / 257),
    "16-bit PGM": ("a.pgm", RAMP, RAMP / 257),
    "float TIFF": ("a.tif", (RAMP / 65535).astype(np.float32), RAMP / 257),
}


@pytest.mark.parametrize("name", WIDE)
@pytest.mark.parametrize("channels", [1, 3])
def test_pictures_of_16_bits_and_floating_point_numbers_keep_their_range(name, channels, tmp_path):
    """Pillow would cut 16 bits off at 255 (white), and turn numbers below 1 to 0 (black)."""
    pytest.importorskip("PIL")
    file, pixels, expected = WIDE[name]
    found = read_images(encode(tmp_path, file, pixels), labels="optional", channels=channels)
    image = found.source.image(0)
    assert image.shape == (channels, 8, 8)
    torch.testing.assert_close(image[-1].double(), torch.from_numpy(expected), rtol=0, atol=0.5)


@pytest.mark.parametrize("dtype", [np.uint16, ">u2", np.float32, np.float64, np.float16])
def test_arrays_of_16_bits_and_floating_point_numbers_keep_their_range(dtype, tmp_path):
    pixels = RAMP.astype(dtype) if np.dtype(dtype).kind == "u" else (RAMP / 65535).astype(dtype)
    np.savez(tmp_path / "a.npz", images=pixels[None], labels=[0])
    image = read_images(tmp_path / "a.npz", channels=1).source.image(0)[0]
    atol = 0.5 if dtype != np.float16 else 0.7
    torch.testing.assert_close(image.double(), torch.from_numpy(RAMP / 257), rtol=0, atol=atol)


@pytest.mark.parametrize(
    "pixels, message",
    [
        (np.full((2, 2), 70_000, dtype=np.int32), "got int32 from 70000 to 70000"),
        (np.array([[0.0, 1.5]], dtype=np.float32), "got float32 from 0 to 1.5"),
        (np.array([[-0.5, 1.0]], dtype=np.float32), "got float32 from -0.5 to 1"),
        (np.array([[np.nan, 1.0]], dtype=np.float32), "got float32 from nan to nan"),
    ],
)
def test_pictures_of_unknown_range_are_refused(pixels, message, tmp_path):
    pytest.importorskip("PIL")
    part = ImagePart.of(read_images(encode(tmp_path, "a.tif", pixels), labels="optional"))
    with pytest.raises(ValueError, match=f"a.tif: expected pixels of 8 or 16 bits, .*{message}"):
        part.pixels([0])
    with pytest.raises(ValueError, match=f"arrays: expected pixels of 8 or 16 bits, .*{message}"):
        read_images(pixels[None], labels="optional")


def unlabelled_sources(path, images):
    """The same images without classes, in every form."""
    above, files = path.parent, sorted(path.rglob("*.png"))
    flat = above / "flat"
    flat.mkdir()
    (flat / "empty").mkdir()
    for file in files:
        (flat / file.name).write_bytes(file.read_bytes())
    with tarfile.open(above / "flat.tar", "w") as archive:
        archive.add(flat, arcname=".")
    (above / "list.csv").write_text("\n".join(["path", *(str(file.relative_to(above)) for file in files)]))
    pixels = images[:, 0].numpy()
    np.savez(above / "a.npz", images=pixels)
    return {
        "folder": flat,
        "tar": above / "flat.tar",
        "list": above / "list.csv",
        "npz": above / "a.npz",
        "files": files,
        "names": tuple(map(str, files)),
        "array": pixels,
        "array of one channel": images.permute(0, 2, 3, 1).numpy(),
    }


def test_images_without_classes_are_read_where_labels_are_optional(folder):
    path, images, _ = folder
    labelled = read_images(path, channels=1)
    schema = ImageSchema(labelled.classes, 16, 1)
    expected = schema.read(path).pixels(range(12))
    for form, source in unlabelled_sources(path, images).items():
        part = schema.read(source, labels="optional")
        assert torch.equal(part.pixels(range(12)), expected), form
        assert part.targets is None
        assert part.name(3) in ("0003.png", "image 3")
        with pytest.raises(ValueError, match="data: expected labels, to train or to evaluate"):
            part.__getitems__([0])
        with pytest.raises(ValueError, match=r"expected (one folder|a column 'label'|an array 'labels'|images )"):
            schema.read(source)
    assert schema.read(next(path.rglob("*.png")), labels="optional").pixels([0]).shape == (1, 1, 16, 16)


def test_wrong_sources_in_memory_are_named(folder):
    path, images, _ = folder
    (path.parent / "nothing").mkdir()
    for source, error, message in [
        (path.parent / "nothing", ValueError, r"nothing: expected images \(.jpg, .jpeg, .png, ...\), got none"),
        ([], TypeError, "source: expected a path, a sequence of image files, an array .* got list"),
        (3, TypeError, "got int"),
        (["nowhere.png"], FileNotFoundError, "nowhere.png: no such file"),
        (images[0, 0].numpy(), ValueError, r"expected images \(N, H, W\)"),
        ((images[:, 0].numpy(), np.zeros(3)), ValueError, "arrays: expected one label per image"),
        (np.zeros((0, 8, 8), dtype=np.uint8), ValueError, r"expected images \(N, H, W\)"),
    ]:
        with pytest.raises(error, match=message):
            read_images(source, labels="optional")


def test_images_beside_the_folders_of_the_classes_are_noted(folder):
    path, images, labels = folder
    (path / "cover.png").write_bytes((path / "class-00" / "0000.png").read_bytes())
    for wanted in ("required", "optional"):
        with pytest.warns(DataNote, match="ignored 1 images beside the folders of the classes"):
            assert_holds(read_images(path, channels=1, labels=wanted), images, labels)


def test_arrays_in_memory_with_labels():
    images, labels = make_pictures(classes=3, each=4)
    found = read_images((images[:, 0].numpy(), 10 * labels.numpy()), channels=1)
    assert found.classes == ("0", "10", "20")
    assert_holds(found, images, labels)


def test_classes_are_matched_by_name(folder):
    path, *_ = folder
    schema = ImageSchema(("class-02", "extra", "class-00", "class-01"), 16, 1)
    part = schema.read(path)
    assert part.labels.tolist() == [2] * 4 + [3] * 4 + [0] * 4
    assert part.name(0).startswith("class class-00, ")
    (path / "class-02").rename(path / "stranger")
    assert schema.read(path).labels.tolist() == [2] * 4 + [3] * 4 + [4] * 4
    closed = replace(schema, unknown_classes="error")
    with pytest.raises(ValueError, match="expected classes of the training images, got 'stranger' besides"):
        closed.read(path)
    with pytest.warns(DataNote, match="read without labels, because of classes that training did not have: 'stranger'"):
        assert closed.read(path, labels="optional").targets is None


def test_a_saved_schema_reads_alike(folder):
    path, *_ = folder
    schema = ImageSchema(("class-02", "class-00", "class-01"), 12, 1, 14, True, "error")
    loaded = ImageSchema.from_saved(json.loads(json.dumps(schema.to_json())), schema.tensors())
    assert loaded == schema
    first, second = (each.read(path).__getitems__(range(12)) for each in (schema, loaded))
    assert first.features.shape == (12, 1, 12, 12)
    assert torch.equal(first.features, second.features)
    assert torch.equal(first.labels, second.labels)


@pytest.mark.parametrize(
    "changes",
    [
        {"size": 0},
        {"size": "16"},
        {"resize": 8},
        {"channels": 2},
        {"invert": "no"},
        {"unknown_classes": "ignore"},
        {"classes": ["a", "a"]},
        {"classes": [1, 2]},
    ],
)
def test_a_changed_schema_is_refused(changes):
    plain = ImageSchema(("a", "b"), 16, 1).to_json()
    with pytest.raises((ValueError, TypeError), match=f"{next(iter(changes))}: "):
        ImageSchema.from_saved({**plain, **changes}, {})


def test_the_schema_of_images_in_memory_has_their_shape():
    part = make_part(classes=2, channels=3)
    assert ImageSchema.of(part).shape == (3, 16, 16)
    assert ImageSchema.of(replace(part, size=12)).shape == (3, 12, 12)
    wide = ImagePart(ArrayImages(torch.zeros(1, 1, 8, 9, dtype=torch.uint8)), torch.arange(1), None)
    with pytest.raises(ValueError, match="size: expected square images, got 8 x 9"):
        ImageSchema.of(wide)


def test_classes_are_cut_whole_and_the_last_may_be_held_out():
    part = make_part(classes=10)
    for held_out in ("random", "last"):
        pieces = cut_classes(part, [0.2, 0.3], seed=1, held_out=held_out)
        classes = [set(piece.labels.tolist()) for piece in pieces]
        assert [len(each) for each in classes] == [5, 2, 3]
        assert set.union(*classes) == set(range(10))
        assert sum(len(piece) for piece in pieces) == len(part)
    assert classes == [set(range(5)), {5, 6}, {7, 8, 9}]
    again, other = (cut_classes(part, [0.2, 0.3], seed=seed)[0].labels for seed in (1, 2))
    assert torch.equal(again, cut_classes(part, [0.2, 0.3], seed=1)[0].labels)
    assert not torch.equal(again, other)


def test_images_are_cut_alike_in_every_class():
    part = make_part(classes=4, each=10)
    pieces = cut_images(part, [0.1, 0.2], seed=0)
    assert [torch.bincount(piece.labels).tolist() for piece in pieces] == [[7] * 4, [1] * 4, [2] * 4]
    assert sorted(torch.cat([piece.rows for piece in pieces]).tolist()) == list(range(40))
    few = cut_images(make_part(classes=2, each=3), [0.1, 0.1], seed=0)
    assert [torch.bincount(piece.labels).tolist() for piece in few] == [[1, 1]] * 3


@pytest.mark.parametrize("shares", [[0.5, 0.6], [0.0], [1.0], [0.5, 0.5], [0.45, 0.45, 0.05]])
def test_shares_that_leave_a_part_empty_are_refused(shares):
    asked = "numbers between 0 and 1 of less than 1 in all" if sum(shares) in (0, 1, 1.1) else "enough"
    with pytest.raises(ValueError, match=f"shares: expected {asked}"):
        cut_images(make_part(), shares, seed=0)


@pytest.mark.parametrize("ratio", [1, 10, 100.0])
def test_a_long_tail_falls_exponentially(ratio):
    part = make_part(classes=5, each=200, size=8)
    counts = torch.bincount(imbalanced(part, ratio, seed=0).labels)
    expected = 200 * ratio ** (-torch.arange(5) / 4)
    torch.testing.assert_close(counts.float(), expected, rtol=0, atol=0.5)
    kept = [imbalanced(part, 10, seed=seed).rows for seed in (0, 0, 1)]
    assert torch.equal(kept[0], kept[1])
    assert not torch.equal(kept[0], kept[2])


@pytest.mark.parametrize("held_out", ["random", "last"])
def test_every_part_of_whole_classes_has_two_of_them(held_out):
    parts = cut_classes(make_part(classes=6), [0.1, 0.2], seed=0, held_out=held_out)
    assert [len(part.labels.unique()) for part in parts] == [2, 2, 2]
    with pytest.raises(ValueError, match=r"expected at least 6 classes .* got 5; .* data.held_out=images"):
        cut_classes(make_part(classes=5), [0.1, 0.2], seed=0, held_out=held_out)


@pytest.mark.parametrize("ratio", [0.5, True, "100"])
def test_a_wrong_ratio_is_refused(ratio):
    with pytest.raises(ValueError, match="ratio: expected a number of at least 1"):
        imbalanced(make_part(), ratio, seed=0)


@pytest.mark.parametrize("name", [name for name in AUGMENTATIONS if name != "none"])
def test_augmented_images_depend_on_seed_epoch_and_batch_alone(name):
    pytest.importorskip("torchvision")
    part, epoch = make_part(size=20, channels=3), [0]
    seen = AugmentedImages(part, augmentation(name, 16), seed=3, epoch=lambda: epoch[0])
    torch.manual_seed(0)
    before = torch.get_rng_state()
    first = seen.__getitems__([1, 2, 3, 4]).features
    assert first.shape == (4, 3, 16, 16)
    assert float(first.min()) >= 0
    assert float(first.max()) <= 1
    assert torch.equal(torch.get_rng_state(), before)
    torch.manual_seed(99)
    assert torch.equal(seen.__getitems__([1, 2, 3, 4]).features, first)
    assert not torch.equal(seen.__getitems__([1, 2, 3, 5]).features[:3], first[:3])
    epoch[0] = 1
    assert not torch.equal(seen.__getitems__([1, 2, 3, 4]).features, first)


def test_shift_moves_an_image_by_up_to_an_eighth_and_reaches_every_offset():
    image = torch.zeros(1, 16, 16, dtype=torch.uint8)
    image[0, 8, 8] = 255
    shift, seen = augmentation("shift", 16), set()
    torch.manual_seed(0)
    for _ in range(500):
        (at,) = shift(image)[0].nonzero().tolist()
        seen.add(tuple(at))
    assert seen == {(row, column) for row in range(6, 11) for column in range(6, 11)}


def test_an_unknown_augmentation_is_answered_with_the_nearest():
    with pytest.raises(ValueError, match="did you mean 'crop-flip'"):
        augmentation("crop-flop", 16)


@pytest.mark.realdata
def test_omniglot_is_read(real_data):
    found = read_images(real_data("omniglot") / "images_evaluation.npz", channels=1, resize=28, invert=True)
    assert len(found.classes) == 659
    assert torch.bincount(found.labels).unique().tolist() == [20]
    image = found.source.image(0)
    assert image.shape == (1, 28, 28)
    assert 0.02 < float(image.float().mean() / 255) < 0.3  # bright strokes on black


@pytest.mark.realdata
def test_cifar_is_read_from_its_tar_file(real_data):
    pytest.importorskip("PIL")
    found = read_images(real_data("cifar10-jpg") / "cifar10-images.tar.xz" / "test")
    assert found.classes[:2] == ("airplane", "automobile")
    assert torch.bincount(found.labels).tolist() == [1000] * 10
    assert found.source.image(9999).shape == (3, 32, 32)
