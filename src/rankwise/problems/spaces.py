"""Search spaces of the options that `rankwise tune` varies: a range or a choice each, by kind of problem and loss."""

from __future__ import annotations

import inspect
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

import yaml

from rankwise.losses import LOSSES
from rankwise.problems.load import BadRecipe, change_problem
from rankwise.problems.problem import Problem

__all__ = ["Choice", "Range", "Space", "default_spaces", "make_spaces", "option_of", "parse_space"]

_FORMS = "log:LOW:HIGH, linear:LOW:HIGH, int:LOW:HIGH or choice:[A, B]"


@dataclass(frozen=True)
class Range:
    """Numbers from `low` to `high`: drawn evenly ("linear"), evenly in their logarithm ("log"), or whole ("int")."""

    low: float
    high: float
    scale: Literal["log", "linear", "int"] = "log"

    @property
    def ends(self) -> tuple[Any, ...]:
        """Return the values to check an option with."""
        return (int(self.low), int(self.high)) if self.scale == "int" else (self.low, self.high)

    def contains(self, value: object) -> bool:
        """Return whether an option's value lies in the range."""
        if isinstance(value, bool) or not isinstance(value, int | float):
            return False
        return self.low <= value <= self.high and (self.scale != "int" or value == int(value))

    def __str__(self) -> str:
        return f"{self.scale}:{self.low:g}:{self.high:g}"


@dataclass(frozen=True)
class Choice:
    """One of some values, each a plain value as YAML has it."""

    values: tuple[Any, ...]

    @property
    def ends(self) -> tuple[Any, ...]:
        """Return the values to check an option with."""
        return self.values

    def contains(self, value: object) -> bool:
        """Return whether an option's value is one of the choices."""
        return value in self.values

    def __str__(self) -> str:
        return f"choice:{yaml.safe_dump(list(self.values), default_flow_style=True, width=math.inf).strip()}"


Space = Range | Choice

# The learning rate, and a weight decay above 0, are searched around what the recipe says.
_AROUND = 10.0
# AdamW multiplies the decay by the learning rate; SGD adds it to the gradient.
_DECAY = {"adamw": Range(1e-4, 1.0), "sgd": Range(1e-6, 1e-2)}
_HIDDEN = Choice(([64], [256], [64, 64], [256, 256]))
# Sizes of batches are not among them: how large they may be depends on the data.
_KINDS: dict[str, dict[str, Space]] = {
    "tabular": {"model.hidden": _HIDDEN, "model.ensemble.regularisation": Range(0.3, 30.0)},
    "ltr": {"model.hidden": _HIDDEN},
    "text-search": {"model.scale": Range(5.0, 50.0)},
    "pap": {"model.hidden": Choice(([], [64], [64, 64]))},
    "retrieval": {"model.hidden": _HIDDEN, "model.dimensions": Choice((32, 64, 128, 256))},
    "recsys": {"model.input_dropout": Range(0.1, 0.7, "linear")},
    "multilabel": {"model.dropout": Range(0.2, 0.7, "linear"), "model.hidden": Choice(([256], [512], [1024]))},
    "image-retrieval": {"model.dimensions": Choice((64, 128, 256))},
    "longtail": {"augmentation": Choice(("none", "shift", "shift-flip"))},
    "detection": {"box_weight": Range(0.5, 5.0)},
}
# By the first name of the loss.
_LOSSES: dict[str, dict[str, Space]] = {
    "auprc": {"tau": Range(0.03, 1.0), "update_rate": Range(0.03, 1.0)},
    "stable-ap": {"tau": Range(0.1, 1.0), "eps": Range(0.03, 0.3)},
    "ndcg": {"discount_shift": Range(0.0, 50.0, "linear"), "margin": Range(0.3, 3.0), "update_rate": Range(0.03, 1.0)},
    "top-k-ndcg": {
        "discount_shift": Range(0.0, 50.0, "linear"),
        "margin": Range(0.3, 3.0),
        "update_rate": Range(0.03, 1.0),
    },
    "listwise-cross-entropy": {"update_rate": Range(0.03, 1.0)},
    "pap": {"margin": Range(0.3, 3.0)},
    "focal": {"gamma": Range(0.5, 5.0), "alpha": Range(0.1, 0.9, "linear")},
    "smooth-ap": {"temperature": Range(0.003, 0.1)},
    "multi-similarity": {"alpha": Range(0.5, 10.0), "beta": Range(10.0, 100.0), "base": Range(0.2, 0.8, "linear")},
    "triplet": {"margin": Range(0.02, 0.5)},
    "lambdarank": {"sigma": Range(0.3, 3.0)},
}
# Data are read and cut once for all trials, and all are evaluated alike.
_FIXED = ("task", "data", "metrics", "seeds", "evaluation", "refit", "device", "logs", "checkpoints")
_READ_WITH = {
    "tabular": ("model.ensemble.folds",),
    "ltr": ("model.ensemble.folds",),
    "text-search": ("model.encoder", "model.dimensions", "model.k1", "model.b"),
}


def default_spaces(problem: Problem[Any, Any]) -> dict[str, Space]:
    """Return the spaces of a problem by key: optimiser, model and loss; without those that its options refuse.

    Example:
        >>> from rankwise.problems import Tabular
        >>> for key, space in default_spaces(Tabular(loss="cross-entropy", model={"ensemble": None})).items():
        ...     print(key, space)
        optimiser.learning_rate log:0.001:0.1
        optimiser.weight_decay log:0.01:1
        model.hidden choice:[[64], [256], [64, 64], [256, 256]]
    """
    optimiser = problem.optimiser
    around = {"learning_rate": optimiser.learning_rate, "weight_decay": optimiser.weight_decay}
    spaces: dict[str, Space] = {
        f"optimiser.{name}": Range(value / _AROUND, value * _AROUND) if value else _DECAY[optimiser.name]
        for name, value in around.items()
    }
    spaces |= _KINDS.get(problem.kind, {})
    of_loss = _LOSSES.get(LOSSES.get(problem.loss.name).name, {})
    spaces |= {f"loss.{option}": space for option, space in of_loss.items()}
    return {key: space for key, space in spaces.items() if _refused(problem, key, space) is None}


def make_spaces(problem: Problem[Any, Any], given: Mapping[str, Space | str | None]) -> dict[str, Space]:
    """Return the spaces to search: the default ones, replaced by those given by key; None leaves an option alone.

    Args:
        problem: whose options are varied.
        given: such as {"optimiser.learning_rate": "log:1e-4:1e-1", "model.hidden": None}.
    """
    spaces = default_spaces(problem)
    for key, wanted in given.items():
        if wanted is None:
            if spaces.pop(key, None) is None:
                raise ValueError(f"space: expected a key that is searched ({', '.join(spaces)}), got {key!r}")
            continue
        space = parse_space(key, wanted) if isinstance(wanted, str) else wanted
        if key.split(".")[0] in _FIXED or key in _READ_WITH.get(problem.kind, ()):
            raise ValueError(f"space {key}: expected an option that may differ between trials, got one that may not")
        refused = _refused(problem, key, space)
        if refused is not None:
            raise ValueError(f"space {key}={space}: {refused}")
        # Another group, such as loss=choice:[soprc, focal], has other options than those of the recipe.
        group = key.removesuffix(".name")
        spaces = {each: space for each, space in spaces.items() if not each.startswith(f"{group}.")}
        spaces[key] = space
    if not spaces:
        raise ValueError("space: expected at least one option to search, got none")
    return spaces


def parse_space(key: str, text: str) -> Space:
    """Return the space that a text describes: "log:1e-4:1e-1", "linear:0:0.5", "int:8:64" or "choice:[a, b]".

    Example:
        >>> parse_space("model.hidden", "choice:[[64], [64, 64]]").values
        ([64], [64, 64])
    """
    kind, _, rest = text.strip().partition(":")
    if kind == "choice":
        try:
            values = yaml.safe_load(rest)
        except yaml.YAMLError:
            values = None
        if not isinstance(values, list) or len(values) < 2:
            raise ValueError(f"space {key}: expected choice: and a list of two or more values, got {text!r}")
        return Choice(tuple(values))
    if kind in ("log", "linear", "int"):
        try:
            low, high = (float(end) for end in rest.split(":"))
        except ValueError:
            low, high = math.nan, math.nan
        whole = kind != "int" or (low.is_integer() and high.is_integer())
        if math.isfinite(low) and math.isfinite(high) and low < high and whole and (kind != "log" or low > 0):
            return Range(low, high, kind)  # type: ignore[arg-type]
        above = ", above 0," if kind == "log" else ""
        numbers = "whole numbers" if kind == "int" else "numbers"
        raise ValueError(f"space {key}: expected {kind}:LOW:HIGH with {numbers}{above} LOW below HIGH, got {text!r}")
    raise ValueError(f"space {key}: expected {_FORMS}, got {text!r}")


def option_of(problem: Problem[Any, Any], key: str) -> Any:
    """Return what a problem says for a key such as "model.hidden", as a plain value, or else the default of its loss;
    None if there is neither.

    Example:
        >>> from rankwise.problems import Tabular
        >>> option_of(Tabular(), "optimiser.learning_rate"), option_of(Tabular(loss="focal"), "loss.gamma")
        (0.01, 2.0)
    """
    value: Any = problem.model_dump(mode="json")
    for name in key.split("."):
        value = value.get(name) if isinstance(value, dict) else None
    if value is None and key.startswith("loss."):
        known = inspect.signature(LOSSES.get(problem.loss.name).build).parameters
        option = known.get(key.removeprefix("loss."))
        return None if option is None or option.default is option.empty else option.default
    return value


def _refused(problem: Problem[Any, Any], key: str, space: Space) -> str | None:
    """Return why a problem takes not all values of a space; None if it takes them."""
    try:
        for value in space.ends:
            change_problem(problem, {key: value})
    except BadRecipe as fault:
        return str(fault)
    return None
