"""The registry: every name and alias finds its record, none is taken twice, and a slip is answered with advice."""

from __future__ import annotations

import dataclasses

import pytest

from rankwise.registry import LossRecord, MetricRecord, Registry, SamplerRecord, nearest


def record(name: str, *aliases: str) -> SamplerRecord:
    return SamplerRecord(name=name, summary="", build=dict, aliases=aliases)


@pytest.fixture
def registry() -> Registry[SamplerRecord]:
    registry: Registry[SamplerRecord] = Registry("sampler")
    registry.add(record("binary", "pos-neg"))
    registry.add(record("classes"))
    return registry


def test_name_and_alias_find_the_same_record(registry):
    assert registry.get("binary") is registry.get("pos-neg")
    assert registry.get("binary").name == "binary"


def test_iteration_gives_each_record_once_in_the_order_added(registry):
    assert [entry.name for entry in registry] == ["binary", "classes"]
    assert len(registry) == 2


@pytest.mark.parametrize("taken", [record("binary"), record("pos-neg"), record("new", "classes")])
def test_a_name_or_alias_cannot_be_taken_twice(registry, taken):
    with pytest.raises(ValueError, match=r"sampler name '.*' is taken by '(binary|classes)'"):
        registry.add(taken)


def test_a_refused_record_leaves_no_name_behind(registry):
    with pytest.raises(ValueError, match="is taken"):
        registry.add(record("new", "classes"))
    with pytest.raises(ValueError, match="unknown sampler 'new'"):
        registry.get("new")
    assert len(registry) == 2


def test_an_unknown_name_is_answered_with_the_nearest_and_all(registry):
    with pytest.raises(
        ValueError, match=r"unknown sampler 'binry'; did you mean 'binary'\? \(known: binary, classes, "
    ):
        registry.get("binry")


def test_a_name_far_from_all_gets_no_wrong_advice(registry):
    with pytest.raises(ValueError, match=r"unknown sampler 'xyz' \(known: binary, classes, pos-neg\)"):
        registry.get("xyz")


@pytest.mark.parametrize("name", [None, 3, ["binary"]])
def test_a_name_must_be_a_string(registry, name):
    with pytest.raises(TypeError, match=rf"sampler: expected a name \(str\), got {type(name).__name__}"):
        registry.get(name)


@pytest.mark.parametrize(
    "name, known, answer",
    [
        ("ndgc", ["ap", "ndcg", "pap"], "; did you mean 'ndcg'? (known: ap, ndcg, pap)"),
        ("AP", ["pap", "ap"], "; did you mean 'ap'? (known: ap, pap)"),
        ("", ["b", "a"], " (known: a, b)"),
        ("x", [], " (known: )"),
    ],
)
def test_nearest_names_one_candidate_and_lists_all_sorted(name, known, answer):
    assert nearest(name, known) == answer


@pytest.mark.parametrize("kind", [LossRecord, MetricRecord, SamplerRecord])
def test_records_cannot_be_changed(kind):
    make = {"per_list": dict} if kind is MetricRecord else {"build": dict}
    role = {"role": "paper"} if kind is LossRecord else {}
    entry = kind(name="x", summary="", **make, **role)
    with pytest.raises(dataclasses.FrozenInstanceError):
        entry.name = "y"
