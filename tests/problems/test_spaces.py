"""Search spaces: those declared fit their options, texts are read back, and what cannot be searched is refused."""

from __future__ import annotations

import pytest

from rankwise.losses import LOSSES, create_loss
from rankwise.problems import Tabular
from rankwise.problems.load import KINDS, problem_class
from rankwise.problems.spaces import (
    _KINDS,
    _LOSSES,
    Choice,
    Range,
    default_spaces,
    make_spaces,
    option_of,
    parse_space,
)


@pytest.mark.parametrize("kind", KINDS)
def test_all_spaces_declared_for_a_kind_fit_its_options(kind: str) -> None:
    spaces = default_spaces(problem_class(kind)())
    assert {"optimiser.learning_rate", "optimiser.weight_decay", *_KINDS[kind]} <= set(spaces)


@pytest.mark.parametrize("name", _LOSSES)
def test_all_spaces_declared_for_a_loss_fit_its_options(name: str) -> None:
    assert LOSSES.get(name).name == name  # a key that is an alias would never be used
    for option, space in _LOSSES[name].items():
        for value in space.ends:
            create_loss(name, **{option: value})


def test_a_loss_has_its_own_spaces() -> None:
    assert "loss.tau" in default_spaces(Tabular())
    keys = default_spaces(Tabular(loss="focal"))
    assert {key for key in keys if key.startswith("loss.")} == {"loss.gamma", "loss.alpha"}


def test_rates_are_searched_around_those_of_the_recipe() -> None:
    spaces = default_spaces(Tabular(optimiser={"learning_rate": 0.5, "weight_decay": 0.02, "name": "sgd"}))
    assert str(spaces["optimiser.learning_rate"]) == "log:0.05:5"
    assert str(spaces["optimiser.weight_decay"]) == "log:0.002:0.2"


def test_options_that_the_recipe_switched_off_are_not_searched() -> None:
    assert "model.ensemble.regularisation" not in default_spaces(Tabular(model={"ensemble": None}))


@pytest.mark.parametrize("text", ["log:0.0001:0.1", "linear:0:0.5", "int:8:64", "choice:[[64], [64, 64]]"])
def test_a_space_is_read_from_its_text(text: str) -> None:
    assert str(parse_space("key", text)) == text


@pytest.mark.parametrize(
    "text, said",
    [
        ("0.1", "expected log:LOW:HIGH, linear:LOW:HIGH, int:LOW:HIGH or choice"),
        ("log:0:1", "above 0"),
        ("log:1", "LOW:HIGH"),
        ("linear:2:1", "LOW below HIGH"),
        ("linear:a:b", "LOW:HIGH"),
        ("log:1e-3:inf", "LOW:HIGH"),
        ("int:1:2.5", "whole numbers"),
        ("choice:a", "list of two or more"),
        ("choice:[a]", "list of two or more"),
        ("choice:[a", "list of two or more"),
    ],
)
def test_a_bad_text_is_refused(text: str, said: str) -> None:
    with pytest.raises(ValueError, match=f"space key: .*{said}.*got") as caught:
        parse_space("key", text)
    assert repr(text) in str(caught.value)


def test_given_spaces_replace_add_and_remove() -> None:
    given = {"optimiser.learning_rate": "log:1e-5:1e-4", "batches.size": "int:16:32", "model.hidden": None}
    spaces = make_spaces(Tabular(), given)
    assert spaces["optimiser.learning_rate"] == Range(1e-5, 1e-4)
    assert spaces["batches.size"] == Range(16, 32, "int")
    assert "model.hidden" not in spaces


def test_a_choice_of_losses_leaves_the_options_of_one_loss_out() -> None:
    spaces = make_spaces(Tabular(), {"loss": "choice:[soprc, cross-entropy]"})
    assert [key for key in spaces if key.startswith("loss")] == ["loss"]


@pytest.mark.parametrize(
    "key, space, said",
    [
        ("optimiser.rate", "log:1e-3:1e-1", "optimiser.rate: unknown key"),
        ("optimiser.learning_rate", "linear:-1:1", "expected a number of more than 0"),
        ("model.hidden", "choice:[[64], wide]", "expected a list"),
        ("data.missing", "choice:[auto, median]", "may differ between trials"),
        ("seeds", "choice:[[1], [2]]", "may differ between trials"),
        ("dropout", None, "expected a key that is searched"),
    ],
)
def test_what_cannot_be_searched_is_refused(key: str, space: str | None, said: str) -> None:
    with pytest.raises(ValueError, match=f"space.*{said}"):
        make_spaces(Tabular(), {key: space})


def test_searching_nothing_is_refused() -> None:
    problem = Tabular(loss="cross-entropy", model={"ensemble": None})
    with pytest.raises(ValueError, match="at least one option"):
        make_spaces(problem, dict.fromkeys(default_spaces(problem)))


def test_what_a_recipe_says_of_an_option() -> None:
    problem = Tabular(loss={"name": "focal", "alpha": 0.5})
    said = [option_of(problem, key) for key in ("loss.alpha", "loss.gamma", "model.hidden", "model.ensemble.none")]
    assert said == [0.5, 2.0, [64, 64], None]


def test_a_space_knows_its_values() -> None:
    assert Range(1, 8, "int").contains(8)
    assert not Range(1, 8, "int").contains(2.5)
    assert not Range(0.1, 1).contains(None)
    assert Choice(([64], None)).contains([64])
    assert not Choice((64,)).contains([64])
