"""Count words that the style of this project avoids, in src: `python scripts/words.py [FOLDER ...]`.

Docstrings of functions begin with a verb, those of classes and modules may name the thing; none begins with What,
Which, Whether, How or Where. An index, slot, rank or device is not called a place, and results are not called found.
See docs/glossary.md.
"""

from __future__ import annotations

import ast
import io
import re
import sys
import tokenize
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[1]
OPENING = re.compile(r"(What|Which|Whether|How|Where)\b")
PHRASES = re.compile(
    r"\b(stands? for|the ways|brings? into order|as good as absent|hopeless|reckon(s|ed)? with|hands? out|"
    r"(takes?|taking) note of|at no cost|again and again|gone over|give or take|next to nothing|a kind of which|"
    r"of strangers)\b",
    re.IGNORECASE,
)
# Docstrings of functions begin with one of these.
VERBS = frozenset(
    [
        "add",
        "allocate",
        "append",
        "apply",
        "assign",
        "average",
        "build",
        "calibrate",
        "call",
        "check",
        "choose",
        "clamp",
        "collect",
        "compare",
        "compute",
        "concatenate",
        "convert",
        "count",
        "create",
        "cut",
        "decide",
        "describe",
        "detect",
        "divide",
        "draw",
        "drop",
        "encode",
        "evaluate",
        "export",
        "fill",
        "find",
        "fit",
        "format",
        "gather",
        "go",
        "group",
        "hash",
        "infer",
        "insert",
        "inspect",
        "integrate",
        "keep",
        "learn",
        "leave",
        "list",
        "load",
        "log",
        "look",
        "make",
        "match",
        "measure",
        "merge",
        "minimise",
        "move",
        "multiply",
        "name",
        "normalise",
        "note",
        "number",
        "open",
        "pad",
        "parse",
        "print",
        "probe",
        "raise",
        "rank",
        "read",
        "recommend",
        "record",
        "reduce",
        "refuse",
        "repeat",
        "replace",
        "resize",
        "return",
        "run",
        "save",
        "say",
        "scale",
        "score",
        "search",
        "set",
        "shift",
        "show",
        "sort",
        "split",
        "sum",
        "suppress",
        "take",
        "train",
        "turn",
        "update",
        "warn",
        "wrap",
        "write",
        "yield",
    ]
)
PLACE = re.compile(r"(?<!\bin )(?<!\btakes )(?<!\btake )\bplaces?\b", re.IGNORECASE)
NAMES = {"found", "place", "places"}


class Use(NamedTuple):
    path: Path
    line: int
    text: str
    of_function: bool = False


def docstrings(paths: list[Path]) -> Iterator[Use]:
    """Yield every docstring below the paths."""
    for path in files(paths):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
                text = ast.get_docstring(node)
                if text is not None:
                    of_function = isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
                    yield Use(path, getattr(node, "lineno", 1), text, of_function)


def questions(paths: list[Path]) -> list[Use]:
    """Return the docstrings that begin like a question."""
    return [use for use in docstrings(paths) if OPENING.match(use.text)]


def without_verb(paths: list[Path]) -> list[Use]:
    """Return the docstrings of functions that do not begin with a verb."""
    return [
        use for use in docstrings(paths) if use.of_function and use.text.split()[0].rstrip(",").lower() not in VERBS
    ]


def avoided(paths: list[Path]) -> list[Use]:
    """Return comments, strings and names with a word to avoid."""
    uses = []
    for path in files(paths):
        source = io.StringIO(path.read_text(encoding="utf-8"))
        for token in tokenize.generate_tokens(source.readline):
            prose = token.type in (tokenize.COMMENT, tokenize.STRING) and " " in token.string
            if prose and (match := PHRASES.search(token.string) or PLACE.search(token.string)):
                line = token.start[0] + token.string[: match.start()].count("\n")
                uses.append(Use(path, line, match[0]))
            elif token.type == tokenize.NAME and token.string in NAMES:
                uses.append(Use(path, token.start[0], token.string))
    return uses


def files(paths: list[Path]) -> Iterator[Path]:
    for path in paths:
        yield from sorted(path.rglob("*.py")) if path.is_dir() else [path]


def main(arguments: list[str]) -> None:
    paths = [Path(each) for each in arguments] or [ROOT / "src"]
    count = sum(1 for _ in docstrings(paths))
    asked, nouns, words = questions(paths), without_verb(paths), avoided(paths)
    for use in (*asked, *nouns, *words):
        print(f"{use.path}:{use.line}: {use.text.splitlines()[0]}")
    print(
        f"{len(asked)} of {count} docstrings begin like a question, {len(nouns)} of functions without a verb; "
        f"{len(words)} words to avoid"
    )


if __name__ == "__main__":
    main(sys.argv[1:])
