"""A look at data before any training: what it holds, and what will go wrong with it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from rankwise.data.expectations import HELD_OUT_SHARE, ap_interval, expected_ap_loss, mean_reach, training_prior
from rankwise.data.files import Progress
from rankwise.data.parts import Part
from rankwise.data.repeats import first_equal_row, rows_found_in

__all__ = ["Finding", "check_parts"]

FEW_POSITIVES = 30
MANY_GRADES = 32
BIAS = 0.05


@dataclass(frozen=True)
class Finding:
    """One finding in the data.

    Attributes:
        severity: "error" (training will fail or the figures will be wrong), "warning" (likely not what you want) or
            "note" (good to know).
        part: which part it is about.
        what: the finding, with numbers.
        advice: what to do; "" if nothing.
    """

    severity: str
    part: str
    what: str
    advice: str = ""


def check_parts(
    parts: Mapping[str, Part],
    *,
    feature_names: Sequence[str] | None = None,
    fill_missing: bool = False,
    positives: int | None = None,
    batch_size: int | None = None,
    on_progress: Progress | None = None,
) -> list[Finding]:
    """Look for what goes wrong in training and evaluation: in every part, and between the first and the others.

    Args:
        parts: by name; the first is the one to learn from.
        feature_names: of the columns, for the messages; by default their numbers from 1.
        fill_missing: whether missing values are replaced by the medians of the first part, as models do that are
            trained with `missing: median`.
        positives, batch_size: how many of the rows of a training batch are to be positive, to hear what a plain AP
            loss would make of such batches. Both or none.
        on_progress: called with the share of the work that is done.

    Example:
        >>> train = Part(torch.tensor([[1.0], [2.0], [2.0]]), torch.tensor([0, 1, 0]))
        >>> for finding in check_parts({"train": train}):
        ...     print(finding.severity, finding.what[:90])
        note 3 rows, 1 feature, one list
        note labels: 0 (2 rows), 1 (1 row); 33.3 % positive
        warning 1 positive row
        warning 2 rows with the same features as another row, 2 of them while their labels differ
        note 1 positive row, of which a test part of 20 % gets about 1: an AP of 0.5 there has a 95 % i
    """
    names = list(parts)
    if not names:
        raise ValueError("parts: expected at least one, got none")
    if fill_missing:
        parts = _fill_missing(parts)
    findings: list[Finding] = []
    steps = 2 * len(names)
    for done, (name, part) in enumerate(parts.items()):
        columns = feature_names or [str(index + 1) for index in range(part.features.shape[1])]
        findings += (Finding(severity, name, what, advice) for severity, what, advice in _check_part(part, columns))
        _report(on_progress, (done + 1) / steps)
    for name in names if len(names) == 1 else names[1:]:
        findings += _expect(name, parts[name], HELD_OUT_SHARE if len(names) == 1 else 1.0)
    for done, name in enumerate(names[1:]):
        findings += _compare(names[0], parts[names[0]], name, parts[name])
        _report(on_progress, (len(names) + done + 1) / steps)
    if positives is not None or batch_size is not None:
        findings += _check_batch(names[0], parts[names[0]], positives, batch_size)
    _report(on_progress, 1.0)
    return findings


def _fill_missing(parts: Mapping[str, Part]) -> dict[str, Part]:
    first = next(iter(parts.values())).features[:]
    medians = torch.from_numpy(np.nanmedian(first.numpy(), axis=0)).to(first.dtype)
    return {
        name: replace(part, features=torch.where(part.features[:].isnan(), medians, part.features[:]))
        for name, part in parts.items()
    }


_Said = tuple[str, str, str]


def _check_part(part: Part, columns: Sequence[str]) -> Iterator[_Said]:
    rows, width = part.features.shape
    lists = "one list" if part.query_ids is None else _count(len(part.query_ids.unique()), "list")
    yield "note", f"{_count(rows, 'row')}, {_count(width, 'feature')}, {lists}", ""
    if not rows:
        yield "error", "no rows", "give a part that holds something"
        return
    yield from _check_labels(part.labels, has_lists=part.query_ids is not None)
    if part.query_ids is not None:
        yield from _check_lists(part.labels, part.query_ids)
    yield from _check_features(part.features[:], columns)
    yield from _check_repeats(part)


def _check_labels(labels: Tensor, *, has_lists: bool) -> Iterator[_Said]:
    values, counts = labels.unique(return_counts=True)
    if labels.is_floating_point() and not bool(torch.isfinite(labels).all()):
        yield "error", f"{_count(int((~torch.isfinite(labels)).sum()), 'label')} that are not finite", "mend the labels"
        return
    binary = bool(torch.isin(values.double(), torch.tensor([0.0, 1.0], dtype=torch.float64)).all())
    positives = int((labels > 0).sum())
    if len(values) > MANY_GRADES:
        shown = f"labels: {len(values)} different numbers from {values[0].item():g} to {values[-1].item():g}"
    else:
        pairs = zip(values.tolist(), counts.tolist(), strict=True)
        shown = "labels: " + ", ".join(f"{value:g} ({_count(count, 'row')})" for value, count in pairs)
    if len(values) > MANY_GRADES and not has_lists:
        advice = "measurements or times, not grades: name the label column with --label, or cut them into two kinds"
        yield "error", shown, advice
        return
    yield "note", f"{shown}; {100 * positives / len(labels):.3g} % positive", ""
    if bool((values < 0).any()):
        yield (
            "error",
            f"{_count(int((labels < 0).sum()), 'label')} below 0",
            "losses and metrics want 0 and 1, or grades of 0 and more: map the labels, leave out unlabelled rows",
        )
    if len(values) == 1:
        yield "error", f"all labels are {values[0].item():g}", "ranking needs rows of both kinds"
    elif 0 < positives < FEW_POSITIVES:
        yield (
            "warning",
            _count(positives, "positive row"),
            "average precision will vary much from cut to cut: use folds, several seeds and intervals",
        )
    if not binary and len(values) > 1 and float(values[-1]) > MANY_GRADES:
        yield (
            "warning",
            f"grades up to {values[-1].item():g}",
            "the gain 2^grade - 1 of NDCG grows out of hand: use gain='linear' or fewer grades",
        )


def _check_lists(labels: Tensor, query_ids: Tensor) -> Iterator[_Said]:
    _, list_of_row, sizes = query_ids.unique(return_inverse=True, return_counts=True)
    lists = len(sizes)
    lengths = sizes.sort().values
    yield (
        "note",
        f"rows in a list: {int(lengths[0])} to {int(lengths[-1])}, median {int(lengths[(lists - 1) // 2])}",
        "",
    )
    relevant = torch.zeros(lists, dtype=torch.int64).index_add_(0, list_of_row, (labels > 0).long())
    best = torch.full((lists,), -torch.inf).scatter_reduce_(0, list_of_row, labels.float(), "amax")
    worst = torch.full((lists,), torch.inf).scatter_reduce_(0, list_of_row, labels.float(), "amin")
    without = int((relevant == 0).sum())
    if without:
        yield (
            "error" if without == lists else "warning",
            f"{without} of {_count(lists, 'list')} without a positive row",
            "they teach nothing, and metrics leave them out (empty='skip'): say so beside every figure",
        )
    same = int(((best == worst) & (relevant > 0)).sum())
    if same:
        yield (
            "warning",
            f"{same} of {_count(lists, 'list')} whose rows all have the same positive label",
            "any order is right there: they teach nothing and raise the mean of a metric",
        )
    runs = len(query_ids.unique_consecutive())
    if runs > lists:
        yield (
            "note",
            f"rows of a list do not stand together ({runs} runs for {lists} lists)",
            "fine here; some other programs want them sorted",
        )


def _check_features(features: Tensor, columns: Sequence[str]) -> Iterator[_Said]:
    finite = torch.isfinite(features)
    if not bool(finite.all()):
        bad = (~finite).sum(0)
        yield (
            "error",
            f"{_count(int(bad.sum()), 'missing or infinite value')} in {_some(columns, bad > 0)}",
            "fill them in (missing='median' does) or drop the columns",
        )
    clean = torch.where(finite, features, torch.zeros(())) if not bool(finite.all()) else features
    low, high = clean.amin(0), clean.amax(0)
    constant = low == high
    if bool(constant.any()):
        yield "warning", f"the same value in every row: {_some(columns, constant)}", "drop them: they tell nothing"


def _check_repeats(part: Part) -> Iterator[_Said]:
    groups = None if part.query_ids is None else part.query_ids.numpy()
    first = torch.from_numpy(first_equal_row(_array(part.features[:]), groups))
    times = first.bincount(minlength=len(first))[first]
    repeated = times > 1
    if not bool(repeated.any()):
        return
    highest = part.labels.clone().scatter_reduce_(0, first, part.labels, "amax")[first]
    lowest = part.labels.clone().scatter_reduce_(0, first, part.labels, "amin")[first]
    contradicting = int((repeated & (highest != lowest)).sum())
    where = "" if part.query_ids is None else " of its list"
    what = f"{_count(int(repeated.sum()), 'row')} with the same features as another row{where}"
    if contradicting:
        what += f", {contradicting:,} of them while their labels differ"
    share = int(repeated.sum()) / len(first)
    yield (
        "warning" if contradicting or share > 0.01 else "note",
        what,
        "keep equal rows in the same part; no model can tell apart those with different labels",
    )


def _compare(train_name: str, train: Part, name: str, part: Part) -> Iterator[Finding]:
    if train.features.shape[1] != part.features.shape[1]:
        widths = f"{train.features.shape[1]} and {part.features.shape[1]} features"
        yield Finding("error", name, f"{train_name} and {name} have {widths}", "read them with the same columns")
        return
    shared_rows = int((rows_found_in(_array(part.features[:]), _array(train.features[:])) >= 0).sum())
    if shared_rows:
        share = f"{100 * shared_rows / len(part):.3g} %"
        yield Finding(
            "warning",
            name,
            f"{_count(shared_rows, 'row')} ({share}) with the features of a row of {train_name}",
            "figures will be too good unless such rows are naturally frequent: cut the data so that equal rows stay "
            "together",
        )
    if (train.query_ids is None) != (part.query_ids is None):
        yield Finding("error", name, f"only one of {train_name} and {name} has lists", "read both with their queries")
    elif train.query_ids is not None and part.query_ids is not None:
        queries = _list_names(part)
        shared = len(queries & _list_names(train))
        if shared:
            yield Finding(
                "error" if shared_rows else "warning",
                name,
                f"{shared} of {_count(len(queries), 'list')} with the id of a list of {train_name}",
                "the same list in both parts makes figures worthless: cut by query (cut_by_query, folds_by_query); "
                "ids that only happen to be the same do no harm",
            )
    unknown = part.labels.unique()
    unknown = unknown[~torch.isin(unknown, train.labels.unique())]
    if len(unknown):
        shown = ", ".join(f"{value:g}" for value in unknown[:3].tolist())
        yield Finding("warning", name, f"labels that {train_name} does not have: {shown}", "is this the same data?")


def _expect(name: str, part: Part, share: float) -> Iterator[Finding]:
    """Say how exactly a metric can be measured on a part, or on a share of it that is held out."""
    held_out = f", of which a test part of {share:.0%} gets about ".replace("%", " %") if share < 1 else ""
    compared = "smaller differences show only pair by pair, by rankwise compare"
    positive = part.labels > 0
    if part.query_ids is not None:
        lists = len(part.query_ids[positive].unique())
        if lists:
            measured = max(1, round(share * lists))
            counted = f"{_count(lists, 'list')} with a positive row{f'{held_out}{measured:,}' if held_out else ''}"
            reach = f"the mean of a metric there has a 95 % interval of at most ± {mean_reach(measured):.2g}"
            yield Finding("note", name, f"{counted}: {reach}", compared)
        return
    positives = int(positive.sum())
    if 0 < positives < len(positive):
        measured = max(1, round(share * positives))
        low, high = ap_interval(0.5, measured)
        counted = f"{_count(positives, 'positive row')}{f'{held_out}{measured:,}' if held_out else ''}"
        reach = f"an AP of 0.5 there has a 95 % interval of about {low:.2f} to {high:.2f}"
        losses = (
            "which loss suits the data, one for AP or cross entropy, is measured by APClassifier: see its learners_"
        )
        yield Finding("note", name, f"{counted}: {reach}", f"{compared}; {losses}")


def _list_names(part: Part) -> set[str]:
    """Return the lists of a part by name, or by id where they have no names."""
    assert part.query_ids is not None
    ids = part.query_ids.unique().tolist()
    return {str(each) if part.query_names is None else part.query_names[each] for each in ids}


def _check_batch(name: str, part: Part, positives: int | None, batch_size: int | None) -> Iterator[Finding]:
    if positives is None or batch_size is None:
        raise ValueError("positives and batch_size: expected both or none, got one")
    if not 0 < positives < batch_size:
        raise ValueError(f"positives: expected from 1 to {batch_size - 1}, fewer than batch_size, got {positives}")
    if part.query_ids is not None:
        yield Finding("note", name, "batches of positives and negatives are for data of one list", "")
        return
    prior = float((part.labels > 0).double().mean())
    if not 0 < prior < 1:
        return
    batch_prior = positives / batch_size
    on_data, on_batch = expected_ap_loss(prior), expected_ap_loss(batch_prior)
    difference = on_batch - on_data
    direction = "too small" if difference < 0 else "too large"
    advice = ""
    if abs(difference) > BIAS:
        advice = f"use a loss that knows the share of positives: AUPRCLoss({training_prior(prior)})"
    yield Finding(
        "warning" if abs(difference) > BIAS else "note",
        name,
        f"{positives} positives in a batch of {batch_size} are {100 * batch_prior:.3g} %, in the data "
        f"{100 * prior:.3g} %: of a model that separates the classes by one standard deviation the plain AP loss of "
        f"such a batch reads {on_batch:.2f} instead of {on_data:.2f}, {abs(difference):.2f} {direction}",
        advice,
    )


def _array(features: Tensor) -> np.ndarray[tuple[int, int], np.dtype[np.float32]]:
    array: np.ndarray[tuple[int, int], np.dtype[np.float32]] = features.float().contiguous().numpy()
    return array


def _count(count: int, noun: str) -> str:
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"


def _some(columns: Sequence[str], chosen: Tensor) -> str:
    """Return the first three of the chosen columns by name."""
    indices = chosen.nonzero().squeeze(1).tolist()
    shown = ", ".join(columns[index] for index in indices[:3])
    more = f" and {len(indices) - 3} more" if len(indices) > 3 else ""
    return f"{'feature' if len(indices) == 1 else 'features'} {shown}{more}"


def _report(on_progress: Progress | None, share: float) -> None:
    if on_progress is not None:
        on_progress(share)
