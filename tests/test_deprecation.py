"""Old names work like the new ones and warn where they are used, naming the new name and the version of removal."""

from __future__ import annotations

import inspect
import sys
import warnings
from types import ModuleType

import pytest

from rankwise.deprecation import renamed_argument, renamed_attributes


@pytest.fixture
def package(monkeypatch):
    """A package with a function, a class and a constant that had other names."""
    package = ModuleType("renaming")
    package.__path__ = []
    package.ndcg, package.Loss, package.LIMIT = (lambda scores: sum(scores)), type("Loss", (), {}), 7
    package.__getattr__ = renamed_attributes(
        "renaming",
        {"gain": "renaming.ndcg", "Old": "renaming.Loss", "MAXIMUM": "renaming.LIMIT", "moved": "math.floor"},
        removed_in="0.3",
    )
    monkeypatch.setitem(sys.modules, "renaming", package)
    return package


@renamed_argument("temperature", "tau", removed_in="0.3")
@renamed_argument("topk", "k", removed_in="0.4")
def score(value, *, tau=1.0, k=None):
    """Return the arguments."""
    return value, tau, k


class Loss:
    @renamed_argument("width", "margin", removed_in="0.3")
    def __init__(self, margin=1.0):
        self.margin = margin

    @renamed_argument("x", "scores", removed_in="0.3")
    def forward(self, scores):
        return self.margin * scores


@pytest.mark.parametrize("old, new", [("gain", "ndcg"), ("Old", "Loss"), ("MAXIMUM", "LIMIT")])
def test_an_old_attribute_is_the_new_object(package, old, new):
    with pytest.warns(FutureWarning, match=rf"^renaming\.{old} is deprecated .* rankwise 0\.3; use renaming\.{new}$"):
        assert getattr(package, old) is getattr(package, new)


def test_an_attribute_may_have_moved_to_another_module(package):
    with pytest.warns(FutureWarning, match=r"use math\.floor$"):
        assert package.moved(2.5) == 2


def test_an_import_by_the_old_name_warns_at_the_line_of_the_import(package):
    with pytest.warns(FutureWarning, match="use renaming.Loss") as caught:
        from renaming import Old
    assert Old is package.Loss
    assert {warning.filename for warning in caught} == {__file__}


def test_an_unknown_attribute_is_missing_as_in_any_module(package):
    with pytest.raises(AttributeError, match=r"^module 'renaming' has no attribute 'other'$"):
        package.other  # noqa: B018
    assert not hasattr(package, "other")


def test_new_names_do_not_warn(package):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert package.LIMIT == 7
        assert score(1, tau=2, k=3) == (1, 2, 3)
        assert Loss(2).forward(3) == 6


def test_an_old_argument_is_passed_on_and_warns_at_the_line_of_the_call():
    with pytest.warns(
        FutureWarning, match=r"^score\(temperature=\.\.\.\) is deprecated .* rankwise 0\.3; use tau$"
    ) as caught:
        assert score(1, temperature=0.5) == (1, 0.5, None)
    assert caught[0].filename == __file__


def test_several_arguments_of_one_function_may_be_renamed():
    with pytest.warns(FutureWarning) as caught:
        assert score(1, temperature=0.5, topk=3) == (1, 0.5, 3)
    assert [str(warning.message).rpartition("; use ")[2] for warning in caught] == ["tau", "k"]


def test_arguments_of_classes_and_methods_may_be_renamed():
    with pytest.warns(FutureWarning, match=r"^Loss\(width=\.\.\.\) is deprecated"):
        loss = Loss(width=3)
    with pytest.warns(FutureWarning, match=r"^Loss\.forward\(x=\.\.\.\) is deprecated"):
        assert loss.forward(x=2) == 6


@pytest.mark.parametrize("call", [lambda: Loss(1, width=2), lambda: Loss(margin=1, width=2)])
@pytest.mark.filterwarnings("ignore:Loss:FutureWarning")
def test_old_and_new_name_together_are_refused(call):
    with pytest.raises(TypeError, match="margin"):
        call()


def test_the_signature_shows_the_new_names_only():
    assert list(inspect.signature(score).parameters) == ["value", "tau", "k"]
    assert score.__doc__ == "Return the arguments."
