"""The demonstration: two small problems, the usual losses and SOPRC, equal budgets."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial

from torch import nn

from rankwise.data import TableSchema, load_digit_retrieval, load_eights
from rankwise.problems.retrieval import Retrieval
from rankwise.problems.tabular import Tabular
from rankwise.problems.trials import Contender, Outcome, compete

__all__ = ["DemoPlan", "DemoResult", "plan_demo", "run_demo"]

STEPS = 100
LONGER = 4


@dataclass(frozen=True)
class DemoPlan:
    """Plan of the demonstration.

    Attributes:
        eights, retrieval: the contenders on the two problems.
        seeds: one trial each; a seed cuts the data anew.
        rates: the learning rates every trained contender chooses from.
    """

    eights: tuple[Contender, ...]
    retrieval: tuple[Contender, ...]
    seeds: tuple[int, ...]
    rates: tuple[float, ...]

    @property
    def steps(self) -> int:
        """Return the number of optimiser steps in all."""
        each = sum(contender.steps for contender in (*self.eights, *self.retrieval))
        return each * len(self.seeds) * len(self.rates)


@dataclass(frozen=True)
class DemoResult:
    """Results of the contenders, in the order of the plan."""

    plan: DemoPlan
    eights: tuple[Outcome, ...]
    retrieval: tuple[Outcome, ...]


def plan_demo(*, seeds: int = 5, quick: bool = False) -> DemoPlan:
    """Return the plan of the demonstration.

    Args:
        seeds: how many seeds.
        quick: fewer learning rates and no longer runs: to see it work, not to quote.

    Example:
        >>> [contender.name for contender in plan_demo(quick=True).eights]
        ['cross entropy', 'balanced cross entropy', 'SOPRC']
    """
    plain = Contender("cross entropy", _eights("cross-entropy", positives="random"), load_eights, STEPS)
    balanced = Contender("balanced cross entropy", _eights("balanced-cross-entropy"), load_eights, STEPS)
    direct = Contender("SOPRC", _eights("soprc"), load_eights, STEPS)
    eights = (plain, balanced, direct) if quick else (plain, _longer(plain), balanced, _longer(balanced), direct)
    retrieval = (
        Contender("raw pixels", _digits(_RawPixels, "soprc"), load_digit_retrieval, 0),
        Contender("cross entropy features", _digits(Retrieval, "classifier"), load_digit_retrieval, STEPS),
        Contender("SOPRC", _digits(Retrieval, "soprc"), load_digit_retrieval, STEPS),
    )
    rates = (0.003, 0.03) if quick else (0.001, 0.003, 0.01, 0.03, 0.1)
    return DemoPlan(eights, retrieval, tuple(range(seeds)), rates)


def run_demo(plan: DemoPlan, *, on_step: Callable[[str], None] | None = None) -> DemoResult:
    """Run it all.

    Args:
        plan: made by `plan_demo`.
        on_step: called after every optimiser step with the name of the contender.
    """

    def outcomes(contenders: Sequence[Contender]) -> tuple[Outcome, ...]:
        return tuple(
            compete(
                contender,
                seeds=plan.seeds,
                rates=plan.rates,
                on_step=None if on_step is None else partial(on_step, contender.name),
            )
            for contender in contenders
        )

    return DemoResult(plan, outcomes(plan.eights), outcomes(plan.retrieval))


def _longer(contender: Contender) -> Contender:
    return replace(contender, name=f"{contender.name} {LONGER}x", steps=LONGER * STEPS)


class _RawPixels(Retrieval):
    """Retrieval by the features as they are."""

    def build_model(self, schema: TableSchema) -> nn.Module:
        return nn.Identity()


_MODEL = {"hidden": (64,), "scaling": "none"}


def _eights(loss: str, positives: int | str = 8) -> Tabular:
    batches = {"size": 64, "positives": positives}
    alone = {"model": {**_MODEL, "ensemble": None}, "optimiser": {"weight_decay": 0.0}}
    return Tabular.model_validate({"loss": loss, **alone, "batches": batches, "metrics": ("ap",)})


def _digits(kind: type[Retrieval], loss: str) -> Retrieval:
    batches = {"classes": 10, "samples_per_class": 6}
    model = {**_MODEL, "dimensions": 32}
    return kind.model_validate({"loss": loss, "model": model, "batches": batches, "metrics": ("map", "recall@1")})
