"""The records of the losses: each loss has one, beside its class, and it is made through it."""

from __future__ import annotations

import importlib
import inspect
import pkgutil
from collections import Counter

import pytest
from torch import nn

import rankwise.losses
from rankwise.boosting import objective
from rankwise.losses import LOSSES, ListLoss, create_loss

PAPERS = {"auprc", "stable-ap", "semi-variance", "ndcg", "top-k-ndcg", "listwise-cross-entropy", "pap"}

# Modules of the package that no record makes, and why; or how many do.
EXEMPT = {
    "ListLoss": "the base class",
    "MarkedModule": "the base class of losses that keep state",
    "CountsSteps": "a base class",
    "CompositionalLoss": "a base class",
    "SumLoss": "made by create_loss(add=...)",
    "SwitchLoss": "takes two losses, made by a warm_up",
    "EmbeddingLoss": "takes a loss over scores",
    "LateMemoryLoss": "takes a loss over scores",
    "LateMemoryPairs": "takes a loss of pytorch-metric-learning",
    "ALRPLoss": "takes the errors of boxes besides scores; a loss of detection only",
    "ListTotals": "a part of a loss",
    "Sorter": "a part of a loss",
}
SEVERAL = {"BalancedCrossEntropyLoss": 2, "MetricLearningLoss": 4}


def modules_of_package():
    """Each nn.Module that a file of the package defines, with that file's module."""
    for found in pkgutil.walk_packages(rankwise.losses.__path__, "rankwise.losses."):
        module = importlib.import_module(found.name)
        for value in vars(module).values():
            if isinstance(value, type) and issubclass(value, nn.Module) and value.__module__ == found.name:
                yield value, module


def test_every_loss_has_one_record_or_a_reason_to_have_none():
    pytest.importorskip("pytorch_metric_learning")
    made = Counter(type(record.create()).__name__ for record in LOSSES)
    defined = {each.__name__ for each, _ in modules_of_package()}
    assert set(EXEMPT) <= defined
    assert made == {name: SEVERAL.get(name, 1) for name in defined - set(EXEMPT)}


def test_every_record_is_in_the_file_of_its_loss():
    pytest.importorskip("pytorch_metric_learning")
    files = {module.__name__: module for _, module in modules_of_package()}
    for record in LOSSES:
        assert record in files[type(record.create()).__module__].RECORDS
    assert sum(len(getattr(module, "RECORDS", ())) for module in files.values()) == len(LOSSES)


def test_the_methods_of_the_papers_come_before_the_baselines_of_their_metric():
    assert {record.name for record in LOSSES if record.role == "paper"} == PAPERS
    assert {record.role for record in LOSSES} == {"paper", "baseline"}
    names = [record.name for record in LOSSES]
    # Where the losses of average precision, of NDCG and of pAp@k begin.
    starts = [names.index(name) for name in ("auprc", "ndcg", "pap")]
    assert starts == sorted(starts)
    for start, end in zip(starts, [*starts[1:], len(names)], strict=True):
        roles = [record.role for record in LOSSES][start:end]
        assert roles == sorted(roles, reverse=True)


@pytest.mark.parametrize("record", LOSSES, ids=lambda record: record.name)
def test_a_record_is_complete_and_says_what_its_loss_is(record):
    if record.inputs == "embeddings":
        pytest.importorskip("pytorch_metric_learning")
    loss = record.create()
    assert record.summary
    assert not record.summary.startswith("rival")
    assert record.paper or record.role == "baseline"
    assert (record.inputs == "scores") == isinstance(loss, ListLoss)
    if record.inputs == "scores":
        assert record.labels == loss.label_kind
        assert {"lists", "empty", "reduction"} <= set(record.parameters)
    kinds = {parameter.kind for parameter in inspect.signature(record.build).parameters.values()}
    assert kinds <= {inspect.Parameter.KEYWORD_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD}
    assert all(map(record.takes, record.parameters))
    assert not record.takes("no such option")


@pytest.mark.parametrize("record", LOSSES, ids=lambda record: record.name)
def test_an_unknown_option_is_answered_with_the_nearest(record):
    option = record.parameters[0]
    with pytest.raises(ValueError, match=rf"{record.name}.* has no option '{option}x'; did you mean '{option}'\?"):
        record.create(**{f"{option}x": 1})


def made_by_estimator():
    pytest.importorskip("sklearn")
    from rankwise.sklearn import APClassifier

    APClassifier(loss="soprc", loss_options={"taux": 1}).fit([[0.0], [1.0]] * 20, [0, 1] * 20)


def made_by_recipe():
    pytest.importorskip("pydantic")
    from rankwise.problems import LossChoice

    LossChoice.of("soprc", taux=1)


@pytest.mark.parametrize(
    "make",
    [
        lambda: LOSSES.get("soprc").create(taux=1),
        lambda: create_loss("soprc", taux=1),
        lambda: create_loss("song", add=[{"name": "soprc", "taux": 1}]),
        lambda: objective("soprc", taux=1),
        made_by_estimator,
        made_by_recipe,
    ],
)
def test_all_callers_refuse_an_unknown_option_in_the_same_words(make):
    words = r"auprc \(soprc\) has no option 'taux'; did you mean 'tau'\? \(known: empty, link, "
    with pytest.raises(ValueError, match=words):
        make()


@pytest.mark.parametrize("name", [record.name for record in LOSSES if record.inputs == "scores"])
def test_printing_a_loss_shows_its_options(name):
    text = repr(create_loss(name, empty="error"))
    assert "empty='error'" in text
    assert "<" not in text  # every option has words
