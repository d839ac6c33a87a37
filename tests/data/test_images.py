"""Images: read from folders, tar files, lists and arrays alike; cut, thinned out and varied by seed alone."""

from __future__ import annotations

import sys
import tarfile

import numpy as np
import pytest
import torch

from rankwise.data import (
    AUGMENTATIONS,
    AugmentedImages,
    ImageOptions,
    ImagePart,
    augmentation,
    cut_classes,
    cut_images,
    imbalanced,
    read_images,
)
from workers.pictures import make_part, make_pictures, write_folder

GREY = ImageOptions(channels=1)


def assert_holds(found, images, labels):
    assert torch.equal(found.labels, labels)
    assert len(found.source) == len(images)
    for place in range(0, len(images), 5):
        assert torch.equal(found.source.image(place), images[place])


@pytest.fixture
def folder(tmp_path):
    pytest.importorskip("PIL")
    images, labels = write_folder(tmp_path / "pictures", classes=3, each=4)
    return tmp_path / "pictures", images, labels


def test_a_folder_of_folders(folder):
    path, images, labels = folder
    (path / ".hidden").mkdir()
    (path / "class-00" / "notes.txt").write_text("not an image")
    found = read_images(path, GREY)
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
    found = read_images(archive, GREY)
    assert found.classes == ("class-00", "class-01", "class-02")
    assert_holds(found, images, labels)
    if inside == "train":
        assert_holds(read_images(archive / "train", GREY), images, labels)
        with pytest.raises(ValueError, match="got no folders"):
            read_images(archive / "test", GREY)


def test_a_list_of_paths(folder):
    path, images, labels = folder
    files = sorted(path.rglob("*.png"))
    rows = [f"{file.relative_to(path.parent)},{10 - label},{part}" for file, label, part in zip(
        files, labels.tolist(), ["train", "validation", "test"] * 4, strict=True)]  # fmt: skip
    listed = path.parent / "list.csv"
    listed.write_text("\n".join(["path,label,split", *rows]))
    found = read_images(listed, GREY)
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
    assert_holds(read_images(tmp_path / "a.npz", ImageOptions(channels=channels)), images, classes)


def test_arrays_of_black_and_white(tmp_path):
    ink = np.zeros((2, 8, 8), dtype=bool)
    ink[0, 2:4] = True
    np.savez(tmp_path / "a.npz", images=ink, labels=[0, 1])
    image = read_images(tmp_path / "a.npz", GREY).source.image(0)
    assert image.unique().tolist() == [0, 255]
    inverted = read_images(tmp_path / "a.npz", ImageOptions(channels=1, invert=True)).source.image(0)
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
    found = read_images(path, ImageOptions(resize=10))
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
    grey = read_images(tmp_path / "a.npz", GREY).source.image(1)
    theirs = np.array(image.fromarray(pixels[1].permute(1, 2, 0).numpy()).convert("L"))
    assert int((grey[0].int() - torch.from_numpy(theirs).int()).abs().max()) <= 1


def test_a_cache_gives_the_same_images_and_reads_each_once(folder):
    path, images, _ = folder
    found = read_images(path, ImageOptions(channels=1, cache=True))
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
    np.savez(above / "floats.npz", images=np.zeros((3, 4, 4)), labels=np.zeros(3))
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
        "floats.npz": r"expected images \(N, H, W\) or \(N, H, W, 3\) of uint8 or bool, got float64 \(3, 4, 4\)",
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
    assert_holds(read_images(path.parent / "a.npz", GREY), images, labels)
    with pytest.raises(ModuleNotFoundError, match=r"reading images needs PIL: pip install 'rankwise\[vision\]'"):
        read_images(path)
    assert augmentation("none", 16) is None
    with pytest.raises(ModuleNotFoundError, match=r"'shift' needs torchvision: pip install 'rankwise\[vision\]'"):
        augmentation("shift", 16)


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


@pytest.mark.parametrize("shares", [[0.5, 0.6], [0.0], [0.45, 0.45, 0.05]])
def test_shares_that_leave_a_part_empty_are_refused(shares):
    with pytest.raises(ValueError, match="shares: expected"):
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


def test_an_unknown_augmentation_is_answered_with_the_nearest():
    with pytest.raises(ValueError, match="did you mean 'crop-flip'"):
        augmentation("crop-flop", 16)


@pytest.mark.realdata
def test_omniglot_is_read(real_data):
    options = ImageOptions(channels=1, resize=28, invert=True)
    found = read_images(real_data("omniglot") / "images_evaluation.npz", options)
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
