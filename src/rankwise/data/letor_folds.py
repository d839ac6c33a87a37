"""Collections of LETOR files in folders: MQ2007 / MQ2008 (S1 .. S5) and MSLR (Fold1 .. Fold5)."""

from __future__ import annotations

from pathlib import Path

from rankwise.data.files import Progress
from rankwise.data.letor import read_letor
from rankwise.data.parts import Part, Split
from rankwise.data.splits import join_parts, same_width

__all__ = ["read_letor_folds", "read_letor_split"]

FOLDS = 5


def read_letor_folds(
    folder: str | Path, *, cache: str | Path | None = None, on_progress: Progress | None = None
) -> list[Split]:
    """The five official folds of a folder that holds `S1.txt` .. `S5.txt`, as MQ2007 and MQ2008 do.

    Fold 1 learns from S1, S2, S3, chooses on S4 and is tested on S5; each further fold is one file on.

    Args:
        folder: where the files lie.
        cache: as for `read_letor`.
        on_progress: called with the share of the files that has been read.
    """
    paths = [Path(folder) / f"S{number}.txt" for number in range(1, FOLDS + 1)]
    files = same_width(_read_all(paths, cache, on_progress))
    return [
        Split(
            join_parts([files[(fold + step) % FOLDS] for step in range(3)]),
            files[(fold + 3) % FOLDS],
            files[(fold + 4) % FOLDS],
        )
        for fold in range(FOLDS)
    ]


def read_letor_split(
    train: str | Path,
    validation: str | Path,
    test: str | Path,
    *,
    cache: str | Path | None = None,
    on_progress: Progress | None = None,
) -> Split:
    """A split that comes as three files, such as MSLR's `Fold1/train.txt`, `Fold1/vali.txt` and `Fold1/test.txt`.

    Args:
        train, validation, test: LETOR files; features that one of them never names are 0 there.
        cache: as for `read_letor`.
        on_progress: called with the share of the files that has been read.
    """
    return Split(*same_width(_read_all([Path(train), Path(validation), Path(test)], cache, on_progress)))


def _read_all(paths: list[Path], cache: str | Path | None, on_progress: Progress | None) -> list[Part]:
    parts = []
    for done, path in enumerate(paths):

        def report(share: float, done: int = done) -> None:
            if on_progress is not None:
                on_progress((done + share) / len(paths))

        parts.append(read_letor(path, cache=cache, on_progress=report))
    return parts
