"""Check texts by name and judgements of their pairs."""

from __future__ import annotations

from collections.abc import Mapping
from numbers import Real

__all__ = ["check_texts", "number_judgements"]


def check_texts(name: str, texts: object) -> dict[str, str]:
    """Return texts by name; refuse everything else, also none at all."""
    if not isinstance(texts, Mapping):
        raise TypeError(f"{name}: expected texts by name, such as {{'d1': 'a text'}}, got {type(texts).__name__}")
    if not texts:
        raise ValueError(f"{name}: expected texts, got none")
    for key, text in texts.items():
        if not isinstance(text, str):
            raise TypeError(f"{name}: expected texts by name, got {type(text).__name__} for {key!r}")
    return dict(texts)


def number_judgements(corpus: Mapping[str, str], judgements: object) -> dict[str, dict[int, float]]:
    """Return by query the grades above 0 by the number of the document; refuse judgements of which none is above 0."""
    if not isinstance(judgements, Mapping):
        raise TypeError(
            "judgements: expected grades by query and document, such as {'q1': {'d1': 1}}, "
            f"got {type(judgements).__name__}"
        )
    numbers = {name: number for number, name in enumerate(corpus)}
    numbered = {}
    for query, grades in judgements.items():
        if not isinstance(grades, Mapping):
            raise TypeError(
                "judgements: expected grades by document for each query, such as {name: 1 for name in documents}, "
                f"got {type(grades).__name__} for query {query!r}"
            )
        for name, grade in grades.items():
            if name not in numbers:
                raise ValueError(f"judgements: expected documents of the corpus, got {name!r} for query {query!r}")
            if not isinstance(grade, Real):
                raise TypeError(
                    f"judgements: expected numbers as grades, got {grade!r} for query {query!r} and document {name!r}"
                )
        numbered[query] = {numbers[name]: float(grade) for name, grade in grades.items() if grade > 0}
    if not any(numbered.values()):
        raise ValueError("judgements: expected a query with a relevant document, got none")
    return numbered
