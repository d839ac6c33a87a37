"""Kinds of problems by name, and problems from recipes: YAML files, `key=value` changes, errors that name the key."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from importlib import import_module
from importlib.resources import files
from pathlib import Path
from types import UnionType
from typing import TYPE_CHECKING, Any, Union, get_args, get_origin

import yaml
from pydantic import BaseModel, ValidationError

from rankwise.registry import nearest

if TYPE_CHECKING:
    from rankwise.problems.problem import Problem

__all__ = [
    "KINDS",
    "About",
    "BadRecipe",
    "change_problem",
    "dump_problem",
    "is_data",
    "library",
    "load_about",
    "load_problem",
    "make_problem",
    "problem_class",
]

_LIMITS = {
    "greater_than_equal": ("at least", "ge"),
    "greater_than": ("more than", "gt"),
    "less_than": ("less than", "lt"),
    "less_than_equal": ("at most", "le"),
}
_TYPES = {
    "path": "a file",
    "int": "a whole number",
    "float": "a number",
    "string": "text",
    "tuple": "a list",
    "bool": "true or false",
}
# Far more than any recipe says: what is larger was made to fill the memory, or is not a recipe.
_MOST_BYTES, _MOST_VALUES, _DEEPEST = 1 << 20, 10_000, 50
# Top-level keys of recipes that were renamed since 0.1.
_RENAMED = {"place": "device"}
# Module and class of each kind, in the order of listings.
KINDS = {
    "tabular": ("tabular", "Tabular"),
    "ltr": ("ltr", "SearchRanking"),
    "text-search": ("text_search", "TextSearch"),
    "pap": ("pap", "Bipartite"),
    "retrieval": ("retrieval", "Retrieval"),
    "recsys": ("recsys", "Recommendation"),
    "multilabel": ("multilabel", "MultiLabel"),
    "image-retrieval": ("image_retrieval", "ImageRetrieval"),
    "longtail": ("longtail", "LongTail"),
    "detection": ("detection", "Detection"),
}


class BadRecipe(ValueError):
    """A recipe that cannot be run; the message names the key, what was expected and what came."""


class About(BaseModel, extra="forbid", frozen=True):
    """Facts about a recipe, its key `about`: nothing in the training depends on them.

    Attributes:
        data: the data set and its size.
        paper: the experiment that it repeats: paper and table.
        expected: the figures there.
        hardware: what it needs.
        time: how long it takes, and by whose word.
        differs: what is different from the paper.
        shape: a `layout` and its sizes, of which `rankwise rehearse` makes data.
    """

    data: str
    paper: str | None = None
    expected: str | None = None
    hardware: str = "a CPU"
    time: str | None = None
    differs: str | None = None
    shape: dict[str, Any] | None = None


def load_problem(name: str | Path, changes: Sequence[str] = ()) -> Problem[Any, Any]:
    """Read a problem from a recipe: a YAML file, or one of the library by its name.

    Args:
        name: a path of a YAML file, or a name from `library()`.
        changes: such as "loss.prior=0.05" or "budget.steps=500"; the value is YAML.
    """
    return make_problem(_read(name), changes)


def load_about(name: str | Path) -> About | None:
    """Read what a recipe says about itself; None if it says nothing.

    Args:
        name: see `load_problem`.
    """
    content = _read(name)
    if not isinstance(content, Mapping) or "about" not in content:
        return None
    return _about(_Copier().copy(content["about"]))


def _about(content: object) -> About:
    try:
        return About.model_validate(content)
    except ValidationError as problem:
        raise BadRecipe(f"about.{_explain(problem, About)}") from None


def _read(name: str | Path) -> object:
    """Return the content of a recipe as YAML has it."""
    path, known = Path(name), library()
    if path.is_file():
        with path.open("rb") as file:
            content = file.read(_MOST_BYTES + 1)
        if len(content) > _MOST_BYTES:
            raise BadRecipe(f"{name}: expected a recipe of at most {_MOST_BYTES >> 20} MiB, got a larger file")
        text = content.decode("utf-8-sig", errors="replace")
    elif str(name) in known:
        text = known[str(name)]
    elif path.is_dir():
        raise BadRecipe(f"recipe: {str(name)!r} is a folder; expected a YAML file or a name")
    elif path.suffix in (".yaml", ".yml") or len(path.parts) > 1:
        raise BadRecipe(f"recipe: no file {str(name)!r}")
    else:
        raise BadRecipe(f"recipe: no file and no recipe called {str(name)!r}{nearest(str(name), known)}")
    return _parse(str(name), text)


def is_data(name: str | Path) -> bool:
    """Return whether this is data to learn from rather than a recipe: a file or folder that is not YAML."""
    path = Path(name)
    return path.exists() and path.suffix not in (".yaml", ".yml")


def make_problem(content: object, changes: Sequence[str] = ()) -> Problem[Any, Any]:
    """Return the problem that the content of a YAML file describes, with changes."""
    if not isinstance(content, Mapping):
        raise BadRecipe(f"recipe: expected keys and values, got {_kind(content)}")
    tree: dict[Any, Any] = _Copier().copy(content)
    for change in changes:
        _apply(tree, change)
    if "about" in tree:
        _about(tree.pop("about"))
    task = tree.pop("task", None)
    if task is None:
        raise BadRecipe(f"task: missing; expected one of {', '.join(KINDS)}")
    if not isinstance(task, str) or task not in KINDS:
        raise BadRecipe(f"task: unknown task {_shown(task)}{nearest(str(task), KINDS)}")
    _migrate(tree)
    kind = problem_class(task)
    loss = tree.get("loss")
    if isinstance(loss, dict) and "name" not in loss:
        loss["name"] = kind.model_fields["loss"].default.name
    try:
        return kind.model_validate(tree)
    except ValidationError as problem:
        raise BadRecipe(_explain(problem, kind)) from None


def change_problem(problem: Problem[Any, Any], values: Mapping[str, Any]) -> Problem[Any, Any]:
    """Return a problem with other values of some options, by key: {"loss.prior": 0.05, "model.hidden": [64]}."""
    tree: dict[Any, Any] = {"task": problem.kind, **problem.model_dump(mode="json")}
    for key, value in values.items():
        _set(tree, key, value, key)
    return make_problem(tree)


def dump_problem(problem: Problem[Any, Any]) -> str:
    """Return a problem as YAML with every key, those left to their defaults included."""
    content = {"task": problem.kind, **problem.model_dump(mode="json")}
    return str(yaml.safe_dump(content, sort_keys=False, allow_unicode=True))


def _migrate(tree: dict[Any, Any]) -> None:
    """Replace renamed keys of recipes of 0.1 by their present names, with a warning."""
    for old, new in _RENAMED.items():
        if old in tree:
            said = f"recipe: {old!r} is now called {new!r}; the old key goes in 0.3"
            warnings.warn(said, FutureWarning, stacklevel=3)
            tree.setdefault(new, tree.pop(old))


def _parse(name: str, text: str) -> object:
    try:
        return yaml.safe_load(text)
    except RecursionError:
        raise BadRecipe(f"{name}: expected values nested at most {_DEEPEST} deep, got more") from None
    except ValueError as problem:  # a date or a number that looks like one and is none
        raise BadRecipe(f"{name}: {problem}") from None
    except yaml.YAMLError as problem:
        mark = getattr(problem, "problem_mark", None)
        where = f", line {mark.line + 1}, column {mark.column + 1}" if mark else ""
        what = getattr(problem, "problem", None) or "not YAML"
        raise BadRecipe(f"{name}{where}: {what}") from None


class _Copier:
    """Copies what YAML made, which names may join to something endless: `a: &a [*a, *a]`."""

    def __init__(self) -> None:
        self._left = _MOST_VALUES

    def copy(self, value: Any, depth: int = 0) -> Any:
        self._left -= 1
        if self._left < 0 or depth > _DEEPEST:
            raise BadRecipe(
                f"recipe: expected at most {_MOST_VALUES:,} values, nested at most {_DEEPEST} deep, got more"
            )
        if isinstance(value, Mapping):
            return {key: self.copy(each, depth + 1) for key, each in value.items()}
        return [self.copy(each, depth + 1) for each in value] if isinstance(value, list) else value


def _apply(tree: dict[Any, Any], change: str) -> None:
    key, sign, text = change.partition("=")
    if not sign or not key.strip():
        raise BadRecipe(f"change {change!r}: expected key=value, such as loss.prior=0.05")
    _set(tree, key.strip(), _Copier().copy(_parse(f"change {change!r}", text)), change)


def _set(tree: dict[Any, Any], key: str, value: Any, change: str) -> None:
    """Set the value of a key such as "loss.prior" in what YAML made; `change` names it in errors."""
    *path, last = key.split(".")
    for name in path:
        below = tree.setdefault(name, {})
        if isinstance(below, str) and name == "loss":
            below = tree[name] = {"name": below}
        if not isinstance(below, dict):
            raise BadRecipe(f"change {change!r}: {name!r} holds {_kind(below)}, not further keys")
        tree = below
    tree[last] = value


def _explain(problem: ValidationError, kind: type[BaseModel]) -> str:
    # An unknown key may be what another error comes from.
    errors = sorted(problem.errors(include_url=False), key=lambda error: error["type"] != "extra_forbidden")
    first, *others = errors
    path, known = _keys_of(kind, first["loc"])
    key = ".".join(path) or "recipe"
    if first["type"] == "extra_forbidden":
        elsewhere = _find_key(kind, path[-1])
        hint = f"; did you mean {elsewhere!r}? (known: {', '.join(sorted(known))})" if elsewhere else None
        said = f"{key}: unknown key{hint or nearest(path[-1], known)}"
    elif first["type"] == "missing":
        said = f"{key}: missing; give it in the recipe or on the command line as {key}=..."
    elif first["type"] == "value_error":
        said = f"{key}: {first['ctx']['error']}"
    else:
        said = f"{key}: expected {_expected(first)}, got {_shown(first['input'])}"
    return said + (f" (and {len(others)} more)" if others else "")


def _find_key(kind: type[BaseModel], key: str) -> str | None:
    """Return the path of a key that a user gave at a wrong level or by a usual other name; None if there is none."""
    groups = {name: _model_in(field.annotation) for name, field in kind.model_fields.items()}
    if key == "batch_size":
        fields = list(groups["batches"].model_fields) if groups.get("batches") is not None else []
        return f"batches.{'size' if 'size' in fields else fields[0]}" if fields else None
    wanted = "learning_rate" if key == "lr" else key
    return next(
        (f"{name}.{wanted}" for name, group in groups.items() if group is not None and wanted in group.model_fields),
        None,
    )


def _keys_of(kind: type[BaseModel], location: Sequence[int | str]) -> tuple[list[str], list[str]]:
    """Return the path of keys as a user knows it (without names of types), and the keys that are known at its end."""
    path: list[str] = []
    model: Any = kind
    known: list[str] = []
    for key in location:
        if model is None and isinstance(key, str):
            break
        path.append(str(key))
        if isinstance(key, str):
            fields = model.model_fields
            known = list(fields)
            model = _model_in(fields[key].annotation) if key in fields else None
    return path, known


def _expected(error: Any) -> str:
    if error["type"] in _LIMITS:
        words, limit = _LIMITS[error["type"]]
        return f"a number of {words} {error['ctx'][limit]:g}"
    if error["type"] == "too_short":
        return "at least one"
    known = _TYPES.get(error["type"].split("_")[0])
    return known or str(error["msg"]).removeprefix("Input should be ")


def _model_in(annotation: Any) -> Any:
    if get_origin(annotation) in (Union, UnionType, tuple):
        return next((model for model in map(_model_in, get_args(annotation)) if model is not None), None)
    return annotation if isinstance(annotation, type) and issubclass(annotation, BaseModel) else None


def _kind(value: object) -> str:
    names = {str: "text", list: "a list", type(None): "nothing", bool: "true or false"}
    return names.get(type(value), "a number" if isinstance(value, int | float) else type(value).__name__)


def _shown(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."


def problem_class(kind: str) -> type[Problem[Any, Any]]:
    """Return the class of a kind of problem."""
    module, name = KINDS[kind]
    chosen: type[Problem[Any, Any]] = getattr(import_module(f"rankwise.problems.{module}"), name)
    return chosen


def library() -> dict[str, str]:
    """Return the recipes that come with the program: their text by name."""
    folder = files("rankwise.problems").joinpath("library")
    recipes = (entry for entry in folder.iterdir() if entry.name.endswith(".yaml"))
    return {entry.name.removesuffix(".yaml"): entry.read_text(encoding="utf-8") for entry in sorted(recipes, key=str)}
