"""Damaged and hostile files end in one clear error that names the file, in little memory."""

from __future__ import annotations

import bz2
import gzip
import json
import lzma
import pickle
import random
import resource
import subprocess
import sys
import tarfile
import zipfile
from io import BytesIO
from pathlib import Path

import numpy as np
import polars as pl
import pytest
import torch
from scipy.io import savemat

from benchmarks.quality.ml100k.features import read_rated_films
from rankwise.data import (
    read_arff,
    read_extreme,
    read_images,
    read_interaction_lists,
    read_interactions,
    read_letor,
    read_multilabel,
    read_scores,
    read_table,
)
from rankwise.training import read_checkpoint

ARFF = "@relation r\n@attribute a numeric\n@attribute b {0,1}\n@attribute c {0,1}\n@data\n" + "0.5,0,1\n" * 30
CSV = "a,b,label\n" + "".join(f"{i}.5,{i % 7},{int(i % 5 == 0)}\n" for i in range(60))


def arrays() -> bytes:
    file = BytesIO()
    np.savez_compressed(file, X=np.random.default_rng(0).normal(size=(30, 4)), y=np.arange(30) % 2)
    return file.getvalue()


def parquet() -> bytes:
    file = BytesIO()
    pl.DataFrame({"a": np.arange(200) * 0.5, "score": np.arange(200), "label": np.arange(200) % 2}).write_parquet(file)
    return file.getvalue()


def arrow(compression: str) -> bytes:
    file = BytesIO()
    frame = pl.DataFrame({"a": np.arange(200) * 0.5, "label": np.arange(200) % 2})
    frame.write_ipc(file, compression=compression)
    return file.getvalue()


def checkpoint() -> bytes:
    file = BytesIO()
    torch.save({"model": {"weight": torch.randn(50, 4)}, "step": 3}, file)
    return file.getvalue()


def cifar() -> bytes:
    """An archive of CIFAR-100 in the python version."""
    batch = {"data": np.zeros((3, 3072), dtype=np.uint8), "fine_labels": [0, 1, 0]}
    contents = {"train": batch, "test": batch, "meta": {"fine_label_names": ["a", "b"]}}
    file = BytesIO()
    with tarfile.open(fileobj=file, mode="w") as archive:
        for name, content in contents.items():
            raw = pickle.dumps(content, protocol=2)
            entry = tarfile.TarInfo(name)
            entry.size = len(raw)
            archive.addfile(entry, BytesIO(raw))
    return file.getvalue()


def cars() -> bytes:
    """The annotations of Cars-196."""
    rows = np.zeros(5, dtype=[("relative_im_path", object), ("class", object), ("test", object)])
    for number in range(5):
        rows[number] = (f"image/{number}.jpg", number % 2 + 1, 0)
    file = BytesIO()
    savemat(file, {"annotations": rows}, do_compression=True)
    return file.getvalue()


def read_listed(path: Path) -> object:
    """Read images that are listed in a file; they lie in the folder `image` beside it."""
    (path.parent / "image").mkdir(exist_ok=True)
    for number in range(5):
        (path.parent / "image" / f"{number}.jpg").touch()
    return read_images(path)


PRODUCTS = "image_id class_id super_class_id path\n" + "".join(f"{i + 1} {i % 2} 1 image/{i}.jpg\n" for i in range(5))
SPECIES = {
    "images": [{"id": i, "file_name": f"image/{i}.jpg"} for i in range(5)],
    "annotations": [{"id": i, "image_id": i, "category_id": i % 2} for i in range(5)],
}

# A file that is in order, and what reads it.
FILES = {
    "Ebay_train.txt": (PRODUCTS.encode(), read_listed),
    "train_list.txt": ("".join(f"{i} {i % 2}\n" for i in range(5)).encode(), read_listed),
    "train2018.json": (json.dumps(SPECIES).encode(), read_listed),
    "cars_annos.mat": (cars(), read_listed),
    "cifar-100-python.tar": (cifar(), read_images),
    "texts.txt": ("".join(f"{i}\tfish law\tCod and haddock {i}\n" for i in range(30)).encode(), read_multilabel),
    "texts.txt.bz2": (bz2.compress(b"fish law\tCod and haddock\n" * 30), read_multilabel),
    "lines.txt": ("".join(f"{i % 3} qid:{i // 8} 1:{i % 5} 2:{i % 7}.25\n" for i in range(80)).encode(), read_letor),
    "sparse.txt": ("".join(f"{i % 3} {i % 4 + 1}:{i % 5}\n" for i in range(80)).encode(), read_letor),
    "lines.txt.gz": (gzip.compress(b"1 qid:1 1:0.5\n0 qid:1 1:0.25\n" * 40, mtime=0), read_letor),
    "times.txt": ("".join(f"1 qid:1 1:{1_700_000_000 + i}\n" for i in range(80)).encode(), read_table),
    "lines.txt.xz": (lzma.compress(b"1 qid:1 1:0.5\n0 qid:1 1:0.25\n" * 40), read_letor),
    "extreme.txt": (b"40 4 3\n" + b"0,2 1:0.5 3:2\n 0:1\n" * 20, read_extreme),
    "lists.txt": (b"0 10 30\n1 20\n" * 20, lambda path: read_interaction_lists([path])),
    "songs.arff": (ARFF.encode(), lambda path: read_arff(path, labels=2)),
    "table.csv": (CSV.encode(), read_table),
    "scores.csv": (CSV.replace("a,b", "score,b").encode(), read_scores),
    "pairs.csv": (b"user,item,stars\n" + b"ann,7,5\nbob,9,3\n" * 10, lambda path: read_interactions(path, rating=2)),
    "table.npz": (arrays(), read_table),
    "table.parquet": (parquet(), read_table),
    "table.arrow": (arrow("uncompressed"), read_table),
    "table.feather": (arrow("zstd"), read_table),
    "scores.parquet": (parquet(), read_scores),
    "step-00000001.pt": (checkpoint(), read_checkpoint),
}


def damaged(content: bytes, seed: int) -> dict[str, bytes]:
    """Ways in which files go bad."""
    chance = random.Random(seed)
    place, length = chance.randrange(len(content)), chance.randrange(1, 40)
    flipped = content[:place] + bytes([content[place] ^ 1 << chance.randrange(8)]) + content[place + 1 :]
    return {
        "cut": content[:place],
        "a bit flipped": flipped,
        "NUL bytes": content[:place] + bytes(length) + content[place + length :],
        "another encoding": content[:place] + "größe".encode("latin-1") + content[place:],
        "UTF-16": b"\xff\xfe" + content.decode("latin-1").encode("utf-16-le"),
        "a huge number": content[:place] + b"9" * 400 + content[place:],
        "a piece twice": content[:place] + content[max(0, place - length) : place] + content[place:],
        "noise": chance.randbytes(200),
    }


@pytest.mark.filterwarnings("ignore::rankwise.data.DataNote")
@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize("seeds", [range(3), pytest.param(range(3, 300), marks=pytest.mark.slow)], ids=["few", "many"])
def test_a_damaged_file_is_read_or_refused_by_name(tmp_path, name, seeds):
    content, read = FILES[name]
    path = tmp_path / name
    path.write_bytes(content)
    read(path)
    for seed in seeds:
        for damage, bad in damaged(content, seed).items():
            path.write_bytes(bad)
            try:
                read(path)
            except ValueError as refusal:
                said = str(refusal)
                if type(refusal) is not ValueError or str(path) not in said:
                    raise AssertionError(f"{damage} (seed {seed}): {said}") from refusal


READ = """
import resource, sys
from pathlib import Path
from rankwise.data import read_images, read_letor, read_scores, read_table
from rankwise.training import read_checkpoint
import polars, sklearn.datasets
read_table("small.csv")
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
try:
    {reader}(Path(sys.argv[1]))
except ValueError as refusal:
    print(refusal)
print((resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) // 1024)
"""


def read_apart(folder: Path, reader: str, path: Path) -> tuple[str, int]:
    """What a reader says in a process of its own, and how many MiB it took."""
    (folder / "small.csv").write_text(CSV)
    done = subprocess.run(
        [sys.executable, "-c", READ.format(reader=reader), str(path)],
        cwd=folder,
        capture_output=True,
        text=True,
        check=True,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_AS, (12 << 30, 12 << 30)),
    )
    *said, mib = done.stdout.splitlines()
    return " ".join(said), int(mib)


def bomb(folder: Path, kind: str) -> Path:
    """A small file that holds more than a gigabyte."""
    path, zeros = folder / kind, bytes(2**20)
    if kind.endswith("npz"):
        with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive, archive.open("X.npy", "w") as member:
            head = {"descr": "|u1", "fortran_order": False, "shape": (1200 << 20,)}
            np.lib.format.write_array_header_1_0(member, head)
            for _ in range(1200):
                member.write(zeros)
    elif kind.endswith("tar.gz"):
        with tarfile.open(path, "w:gz") as archive:
            member = tarfile.TarInfo("class/1.png")
            member.size = 1200 << 20
            archive.addfile(member, _Zeros())
    elif kind.endswith("parquet"):
        pl.select(a=pl.repeat(1, 400_000_000, dtype=pl.Int8)).write_parquet(path, compression="zstd")
    elif kind.endswith("arrow"):
        pl.select(a=pl.repeat(1, 400_000_000, dtype=pl.Int8)).write_ipc(path, compression="zstd")
    else:
        line = b"0" * 2**20 if "line" in kind else b"1,2,0\n" * (2**20 // 6)
        with gzip.open(path, "wb") if kind.endswith("gz") else lzma.open(path, "wb", preset=0) as file:
            for _ in range(1200):
                file.write(line)
    return path


class _Zeros:
    def read(self, size: int) -> bytes:
        return bytes(size)


@pytest.mark.slow
@pytest.mark.parametrize(
    "kind, reader, message",
    [
        ("one line.txt.gz", "read_letor", r"line 1: expected lines of at most 64 MiB, got a longer one"),
        ("rows.csv.gz", "read_table", "expected at most 256 MiB or 200 times its own size when decompressed"),
        ("rows.csv.xz", "read_table", "expected at most 256 MiB or 200 times its own size when decompressed"),
        ("scores.csv.gz", "read_scores", "expected at most 256 MiB or 200 times its own size when decompressed"),
        ("table.npz", "read_table", "expected at most 256 MiB or 200 times its own size when decompressed"),
        ("images.tar.gz", "read_images", "expected at most 256 MiB or 200 times its own size when decompressed"),
        ("table.parquet", "read_table", r"expected at most 134,217,728 cells or 256 to a byte of the file, got 400,"),
        ("table.arrow", "read_table", r"expected at most 134,217,728 cells or 256 to a byte of the file, got 400,"),
    ],
)
def test_a_bomb_is_refused_in_bounded_memory(tmp_path, kind, reader, message):
    path = bomb(tmp_path, kind)
    assert path.stat().st_size < 8 << 20
    said, mib = read_apart(tmp_path, reader, path)
    assert message in said or message.removeprefix(r"line 1: ") in said, said
    assert said.startswith(str(path))
    assert mib < 700  # 256 MiB of text, at most twice


@pytest.mark.parametrize(
    "text, message",
    [
        ("1 qid:1 10000000:1\n", "line 1: expected `index:value` with an index from 1 to 100000"),
        ("1 qid:1 1:1\n1 qid:99999999999999999999 1:1\n", "line 2: expected `qid:` and a whole number"),
        ("1 qid:1 1:1e400\n", "line 1: expected a finite number"),
        ("1 qid:1 1:1\n\x00\x00\n", "line 2: expected `grade qid:number"),
    ],
)
def test_letor_lines_beyond_all_bounds_are_refused_by_line(tmp_path, text, message):
    path = tmp_path / "lines.txt"
    path.write_text(text)
    with pytest.raises(ValueError, match=message.replace("(", r"\(")):
        read_letor(path)


def test_lists_that_come_in_pieces_are_one_list(tmp_path):
    path = tmp_path / "lines.txt"
    path.write_text("1 qid:1 1:1\n0 qid:2 1:2\n0 qid:1 1:3\n")
    assert read_letor(path).query_ids.tolist() == [1, 2, 1]


@pytest.mark.parametrize(
    "line", ["1\t2\t3", "a\tb\tc\td", "1\t99999999999999999\t-5\t3", "1\t2\tx\t4", "1\t2\t3\t1e300"]
)
def test_ratings_of_strangers_are_refused_by_name(tmp_path, line):
    (tmp_path / "u.data").write_text(f"1\t1\t5\t100\n{line}\n")
    with pytest.raises(ValueError, match=r"u\.data|time: expected|rating: expected"):
        read_rated_films(tmp_path, rank=1)


def test_a_picture_that_is_cut_is_refused_by_name(tmp_path):
    from PIL import Image

    folder = tmp_path / "all" / "one"
    folder.mkdir(parents=True)
    Image.new("RGB", (64, 64)).save(folder / "1.png")
    content = (folder / "1.png").read_bytes()
    for end in (0, 8, 20, 40, len(content) // 2):
        (folder / "1.png").write_bytes(content[:end])
        with pytest.raises(ValueError, match=r"1\.png: expected an image that can be read"):
            read_images(tmp_path / "all").source.image(0)
