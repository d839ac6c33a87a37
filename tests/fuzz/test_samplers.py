"""Whatever labels come, every sampler gives its batches, split and resumed without loss, or a clear refusal."""

from __future__ import annotations

from functools import partial

import pytest
import torch
from hypothesis import strategies as st

from fuzz.cases import IDS_OF_ALL_KINDS, search, searches
from rankwise.samplers import SAMPLERS

SMALL = st.integers(1, 6)
OPTIONS = {
    "shuffled": {"batch_size": SMALL, "drop_last": st.booleans()},
    "binary": {"positives": SMALL, "negatives": SMALL, "drop_last": st.booleans()},
    "classes": {"classes": SMALL, "samples_per_class": SMALL, "short_classes": st.sampled_from(["take", "skip"])},
    "queries": {
        "queries": SMALL,
        "relevant": st.none() | SMALL,
        "irrelevant": st.none() | SMALL,
        "without_relevant": st.sampled_from(["skip", "keep"]),
    },
}


@st.composite
def asked(draw: st.DrawFn, name: str) -> tuple[dict[str, object], int, int, int]:
    """Options, a seed, how many processes, and after which batch to stop."""
    count = draw(st.one_of(st.integers(1, 8), st.integers(1, 60)))
    options = {key: draw(value) for key, value in OPTIONS[name].items()}
    whole = st.integers(0, 1) if name in ("binary", "queries") else IDS_OF_ALL_KINDS
    options["labels"] = torch.tensor(draw(st.lists(whole, min_size=count, max_size=count)))
    if name == "queries":
        options["query_ids"] = torch.tensor(draw(st.lists(IDS_OF_ALL_KINDS, min_size=count, max_size=count)))
    return options, draw(st.integers(0, 2**63 - 1)), draw(st.integers(1, 3)), draw(st.integers(0, 5))


def check(name: str, given: tuple[dict[str, object], int, int, int]) -> None:
    options, seed, world, stop = given
    build = partial(SAMPLERS.get(name).build, **options, seed=seed)
    try:
        sampler = build(rank=0, world_size=1)
        batches = list(sampler)
    except ValueError as refusal:
        if not str(refusal).partition(":")[0].isidentifier():
            raise
        return
    items = len(options["labels"])
    assert len(batches) == len(sampler)
    for batch in batches:
        assert batch
        assert len(set(batch)) == len(batch)
        assert all(0 <= index < items for index in batch)
    if all(len(batch) >= world for batch in batches):
        shares = [list(build(rank=rank, world_size=world)) for rank in range(world)]
        for number, batch in enumerate(batches):
            assert sorted(index for share in shares for index in share[number]) == sorted(batch)
    first, second = build(rank=0, world_size=1), build(rank=0, world_size=1)
    for _ in zip(range(min(stop, len(batches))), first, strict=False):
        pass
    second.load_state_dict(first.state_dict(batch=min(stop, len(batches))))
    assert list(second) == batches[stop:]


@searches
@pytest.mark.parametrize("name", [record.name for record in SAMPLERS])
def test_any_labels_give_batches_or_a_clear_refusal(name, examples):
    search(partial(check, name), asked(name), examples)
