"""Reading recipes: YAML, `key=value` changes, and errors that name the key."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib.resources import files
from pathlib import Path
from types import UnionType
from typing import Any, Union, get_args, get_origin

import yaml
from pydantic import BaseModel, ValidationError

from rankwise.recipes.kinds import KINDS
from rankwise.recipes.schema import Recipe
from rankwise.registry import nearest

__all__ = ["BadRecipe", "dump_recipe", "library", "load_recipe", "make_recipe"]

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


class BadRecipe(ValueError):
    """A recipe that cannot be run; the message names the key, what was expected and what came."""


def load_recipe(name: str | Path, changes: Sequence[str] = ()) -> Recipe:
    """Read a recipe from a file, or one that comes with the program by its name, and apply changes.

    Args:
        name: a path of a YAML file, or a name from `library()`.
        changes: such as "loss.prior=0.05" or "budget.steps=500"; the value is YAML.
    """
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
    return make_recipe(_parse(str(name), text), changes)


def make_recipe(content: object, changes: Sequence[str] = ()) -> Recipe:
    """A recipe from what a YAML file holds, with changes."""
    if not isinstance(content, Mapping):
        raise BadRecipe(f"recipe: expected keys and values, got {_kind(content)}")
    tree: dict[Any, Any] = _Copier().copy(content)
    for change in changes:
        _apply(tree, change)
    task = tree.get("task")
    if task is None:
        raise BadRecipe(f"task: missing; expected one of {', '.join(KINDS)}")
    if not isinstance(task, str) or task not in KINDS:
        raise BadRecipe(f"task: unknown task {_shown(task)}{nearest(str(task), KINDS)}")
    loss = tree.get("loss")
    if isinstance(loss, dict) and "name" not in loss:
        loss["name"] = KINDS[task].model_fields["loss"].default.name
    try:
        return KINDS[task].model_validate(tree)
    except ValidationError as problem:
        raise BadRecipe(_explain(problem, KINDS[task])) from None


def dump_recipe(recipe: Recipe) -> str:
    """A recipe as YAML with every key, those left to their defaults included."""
    return str(yaml.safe_dump(recipe.model_dump(mode="json"), sort_keys=False, allow_unicode=True))


def library() -> dict[str, str]:
    """The recipes that come with the program: their text by name."""
    folder = files("rankwise.recipes").joinpath("library")
    found = (entry for entry in folder.iterdir() if entry.name.endswith(".yaml"))
    return {entry.name.removesuffix(".yaml"): entry.read_text(encoding="utf-8") for entry in sorted(found, key=str)}


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
    *path, last = key.strip().split(".")
    for name in path:
        below = tree.setdefault(name, {})
        if isinstance(below, str) and name == "loss":
            below = tree[name] = {"name": below}
        if not isinstance(below, dict):
            raise BadRecipe(f"change {change!r}: {name!r} holds {_kind(below)}, not further keys")
        tree = below
    tree[last] = _Copier().copy(_parse(f"change {change!r}", text))


def _explain(problem: ValidationError, kind: type[Recipe]) -> str:
    first, *others = problem.errors(include_url=False)
    path, known = _keys_of(kind, first["loc"])
    key = ".".join(path) or "recipe"
    if first["type"] == "extra_forbidden":
        said = f"{key}: unknown key{nearest(path[-1], known)}"
    elif first["type"] == "missing":
        said = f"{key}: missing; give it in the recipe or on the command line as {key}=..."
    elif first["type"] == "value_error":
        said = f"{key}: {first['ctx']['error']}"
    else:
        said = f"{key}: expected {_expected(first)}, got {_shown(first['input'])}"
    return said + (f" (and {len(others)} more)" if others else "")


def _keys_of(kind: type[BaseModel], places: Sequence[int | str]) -> tuple[list[str], list[str]]:
    """The path of keys as a user knows it (without names of types), and the keys that may stand where it ends."""
    path: list[str] = []
    model: Any = kind
    known: list[str] = []
    for place in places:
        if model is None and isinstance(place, str):
            break
        path.append(str(place))
        if isinstance(place, str):
            fields = model.model_fields
            known = list(fields)
            model = _model_in(fields[place].annotation) if place in fields else None
    return path, known


def _expected(error: Any) -> str:
    if error["type"] in _LIMITS:
        words, limit = _LIMITS[error["type"]]
        return f"a number of {words} {error['ctx'][limit]:g}"
    if error["type"] == "too_short":
        return "at least one"
    found = _TYPES.get(error["type"].split("_")[0])
    return found or str(error["msg"]).removeprefix("Input should be ")


def _model_in(annotation: Any) -> Any:
    if get_origin(annotation) in (Union, UnionType, tuple):
        return next((found for found in map(_model_in, get_args(annotation)) if found is not None), None)
    return annotation if isinstance(annotation, type) and issubclass(annotation, BaseModel) else None


def _kind(value: object) -> str:
    names = {str: "text", list: "a list", type(None): "nothing", bool: "true or false"}
    return names.get(type(value), "a number" if isinstance(value, int | float) else type(value).__name__)


def _shown(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."
