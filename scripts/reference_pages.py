"""Write the reference of the command line and of recipe keys from the code: docs/reference/cli.md and recipes.md."""

from __future__ import annotations

import inspect
import types
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from pydantic import BaseModel
from pydantic.fields import FieldInfo
from typer.models import ArgumentInfo, OptionInfo, ParameterInfo

from rankwise.cli.app import app
from rankwise.problems.load import KINDS, problem_class
from rankwise.problems.problem import LossChoice, Problem

FOLDER = Path(__file__).resolve().parents[1] / "docs" / "reference"
WORDS = {int: "whole number", float: "number", str: "text", bool: "true or false", Path: "file or folder"}
VALUES = {Path: "PATH", int: "N", float: "NUMBER"}
KEYS = ("key", "value", "default")
BOUNDS = {"ge": "at least {:g}", "gt": "above {:g}", "le": "at most {:g}", "lt": "below {:g}"}


def main() -> None:
    for name, text in pages().items():
        (FOLDER / name).write_text(text, encoding="utf-8")


def pages() -> dict[str, str]:
    """Return the text of each generated page by its file name."""
    return {"cli.md": cli_page(), "recipes.md": recipe_page()}


# The command line: the parameters of the functions behind the commands.


def cli_page() -> str:
    commands = {info.name or str(info.callback.__name__): info for info in app.registered_commands if info.callback}
    rows = [(f"[`{name}`](#{name})", str(info.short_help)) for name, info in commands.items()]
    parts = [
        "# Command line",
        "`rankwise COMMAND --help` prints the same. `--debug` shows the traceback of an error and `--json` prints the "
        "result as one JSON object; both may stand anywhere. Exit codes: 0 success, 1 failure, 2 wrong input, 130 "
        "stopped by Ctrl-C.",
        table(("command", "purpose"), rows),
        *(part for name, info in commands.items() for part in command_section(name, info.callback)),
    ]
    return "\n\n".join(parts) + "\n"


def command_section(name: str, function: Any) -> Iterator[str]:
    hints = get_type_hints(function, include_extras=True)
    parameters = [(each, *split_hint(hints[each.name])) for each in inspect.signature(function).parameters.values()]
    arguments = [each for each in parameters if isinstance(each[2], ArgumentInfo)]
    options = [each for each in parameters if isinstance(each[2], OptionInfo)]
    usage = [
        name if each[0].default is each[0].empty or name.startswith("[") else f"[{name}]"
        for each in arguments
        for name in [parameter_name(each)]
    ]
    yield f"## {name}"
    yield f"```text\n{' '.join(['rankwise', name, *usage, '[OPTIONS]'])}\n```"
    yield inspect.cleandoc(function.__doc__)
    yield table(
        ("argument or option", "default", "meaning"),
        [(f"`{parameter_name(each)}`", parameter_default(each), str(each[2].help)) for each in (*arguments, *options)],
    )


Parameter = tuple[inspect.Parameter, Any, ParameterInfo]


def split_hint(hint: Any) -> tuple[Any, ParameterInfo]:
    # Python 3.10 puts the annotation of a parameter whose default is None into an Optional.
    kind_, info = get_args(get_args(hint)[0] if get_origin(hint) is Union else hint)
    return kind_, info


def parameter_name(parameter: Parameter) -> str:
    given, annotation, info = parameter
    many = any(get_origin(each) is list for each in (annotation, *get_args(annotation)))
    if isinstance(info, ArgumentInfo):
        return info.metavar or given.name.upper() + ("..." if many else "")
    # In an annotation the first name stands where a default would be.
    names = ", ".join([*([info.default] if isinstance(info.default, str) else []), *(info.param_decls or ())])
    names = names or f"--{given.name.replace('_', '-')}"
    if annotation is bool:
        return names
    value = next((word for type_, word in VALUES.items() if type_ in (annotation, *get_args(annotation))), "TEXT")
    return f"{names} {value}"


def parameter_default(parameter: Parameter) -> str:
    given, annotation, info = parameter
    if given.default is given.empty:
        return "required"
    if isinstance(info.show_default, str):
        return info.show_default
    return "" if given.default is None or annotation is bool else f"`{given.default}`"


# Recipes.


def recipe_page() -> str:
    shared = {name: field for name, field in Problem.model_fields.items() if name not in ("metrics", "loss")}
    parts = [
        "# Keys of a recipe",
        "A recipe is a YAML file for `rankwise train`. `task` is required; every other key has the default below. On "
        "the command line a key is written with dots: `budget.steps=500`. An unknown key is an error that names the "
        "nearest known one. `rankwise list losses` shows the names for `loss`, `rankwise list metrics` those for "
        "`metrics`.",
        table(("task", "problem"), [(f"[`{kind}`](#{kind})", problem_class(kind).summary) for kind in KINDS]),
        "## Keys of all tasks",
        *group_parts(Problem, shared),
        "### loss",
        *group_parts(LossChoice, LossChoice.model_fields),
    ]
    for kind in KINDS:
        problem = problem_class(kind)
        parts += [f"## {kind}", *group_parts(problem, own_fields(problem))]
    return "\n\n".join(parts) + "\n"


def own_fields(problem: type[BaseModel]) -> dict[str, FieldInfo]:
    """Return the keys that a kind of problem adds to those of all problems, or gives another default."""
    common = Problem.model_fields
    return {
        name: field
        for name, field in problem.model_fields.items()
        if name not in common or field.default != common[name].default
    }


def group_parts(owner: type[BaseModel], fields: Mapping[str, FieldInfo]) -> Iterator[str]:
    yield prose(owner)
    yield table(KEYS, [(f"`{name}`", takes(field), default(name, field)) for name, field in fields.items()])
    for name, field in fields.items():
        # A group of which a task changes only the default is described with the keys of all tasks.
        if owner is Problem or name not in Problem.model_fields:
            for group in groups_of(field.annotation):
                yield f"### {name}"
                yield from described(name, group)


def described(path: str, group: type[BaseModel]) -> Iterator[str]:
    """Describe a group of options, and the groups inside it after it."""
    fields = group.model_fields
    yield prose(group)
    yield table(KEYS, [(f"`{path}.{key}`", takes(each), default(key, each)) for key, each in fields.items()])
    for key, each in fields.items():
        for inner in groups_of(each.annotation):
            yield from described(f"{path}.{key}", inner)


def groups_of(annotation: Any) -> Iterator[type[BaseModel]]:
    """Yield the groups of options that an annotation allows; a loss is described once for all tasks."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        if not issubclass(annotation, LossChoice):
            yield annotation
        return
    if get_origin(annotation) in (Union, types.UnionType):
        for each in get_args(annotation):
            yield from groups_of(each)


def prose(owner: type[BaseModel]) -> str:
    """Return the docstring up to its example."""
    return inspect.cleandoc(owner.__doc__ or "").partition("Example:")[0].strip()


def takes(field: FieldInfo) -> str:
    bounds = [BOUNDS[key].format(value) for each in field.metadata for key, value in bound_of(each)]
    return " ".join([kind(field.annotation), *([f"({', '.join(bounds)})"] if bounds else [])])


def bound_of(constraint: object) -> Iterator[tuple[str, float]]:
    constraints = getattr(constraint, "metadata", [constraint])
    for each in constraints:
        for key in BOUNDS:
            if isinstance(value := getattr(each, key, None), int | float):
                yield key, value


def kind(annotation: Any) -> str:
    """Say what values an annotation allows."""
    origin, inner = get_origin(annotation), get_args(annotation)
    if origin is Literal:
        return ", ".join(f"`{each}`" for each in inner)
    if origin in (Union, types.UnionType):
        words = dict.fromkeys(kind(each) for each in inner if each is not type(None))
        return " or ".join(words)
    if origin is tuple:
        items = [each for each in inner if each is not Ellipsis]
        return f"list of {kind(items[0])}" if Ellipsis in inner else f"{len(items)} of {kind(items[0])}"
    if origin is dict:
        return "mapping"
    if hasattr(annotation, "__metadata__"):
        bounds = [BOUNDS[key].format(value) for each in annotation.__metadata__ for key, value in bound_of(each)]
        return " ".join([kind(annotation.__origin__), *([f"({', '.join(bounds)})"] if bounds else [])])
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return "name of a loss, or a mapping" if issubclass(annotation, LossChoice) else "mapping"
    return WORDS.get(annotation, str(annotation))


def default(name: str, field: FieldInfo) -> str:
    if field.is_required():
        return "required"
    value = field.get_default(call_default_factory=True)
    if isinstance(value, LossChoice):
        return f"`{yaml_words({'name': value.name, **value.options}) if value.options else value.name}`"
    if isinstance(value, BaseModel):
        # Shown is what a task sets apart from the default of all tasks, or from that of the group.
        common = Problem.model_fields.get(name, field)
        base = dict(common.default) if common is not field and isinstance(value, type(common.default)) else {}
        usual = base or {key: each.default for key, each in type(value).model_fields.items()}
        given = {key: each for key, each in value if each is not None and each != usual[key]}
        return f"`{yaml_words(given)}`" if given else ""
    return "" if value is None else f"`{yaml_words(value)}`"


def yaml_words(value: Any) -> str:
    """Return a value as YAML writes it on one line."""
    if isinstance(value, dict):
        return "{" + ", ".join(f"{key}: {yaml_words(each)}" for key, each in value.items()) + "}"
    if isinstance(value, tuple | list):
        return "[" + ", ".join(yaml_words(each) for each in value) + "]"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, float):
        return f"{value:.4g}"
    return "null" if value is None else str(value)


def table(head: tuple[str, ...], rows: list[tuple[str, ...]]) -> str:
    lines = [head, tuple("---" for _ in head), *rows]
    cells = [[" ".join(cell.split()).replace("|", "\\|") for cell in row] for row in lines]
    return "\n".join(f"| {' | '.join(row)} |" for row in cells)


if __name__ == "__main__":
    main()
