"""The MQ2008 data of LETOR 4.0, cut into train, validation and test as its readme says for each fold."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import torch
from sklearn.datasets import load_svmlight_file

from rankwise.data import Part, Split

__all__ = ["load_fold"]

_SECTIONS = 5


def load_fold(fold: int) -> Split:
    """Fold 1 to 5: three sections to learn from, one for choices, one for the figure.

    The files `S1.txt` .. `S5.txt` are looked for in `letor-mq2008` under the folder that `RANKWISE_DATA` names.
    """
    root = Path(os.environ.get("RANKWISE_DATA", Path(__file__).resolve().parents[3] / "shared" / "data"))
    sections = [root / "letor-mq2008" / f"S{(fold - 1 + place) % _SECTIONS + 1}.txt" for place in range(_SECTIONS)]
    return Split(_read(*sections[:3]), _read(sections[3]), _read(sections[4]))


def _read(*files: Path) -> Part:
    parts = [load_svmlight_file(str(file), n_features=46, query_id=True) for file in files]
    features = np.concatenate([part[0].toarray() for part in parts])
    labels, queries = (np.concatenate([part[place] for part in parts]) for place in (1, 2))
    return Part(torch.from_numpy(features).float(), torch.from_numpy(labels).long(), torch.from_numpy(queries).long())
