"""Draw `docs/assets/demo.svg` from a run of the demonstration: `python docs/make_picture.py`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from jinja2 import Environment, FileSystemLoader

from rankwise.problems.demo import plan_demo, run_demo
from rankwise.problems.trials import Outcome
from rankwise.report.figures import mean_precision_curve

HERE = Path(__file__).parent
SHADES = {
    "cross entropy": "one",
    "cross entropy 4x": "one longer",
    "balanced cross entropy": "two",
    "balanced cross entropy 4x": "two longer",
    "SOPRC": "three",
}
# Two panels, one above the other, so that the text can be read on a phone.
LEFT, RIGHT, TOP, BOTTOM = 222.0, 540.0, 70.0, 310.0  # the means
CURVE_LEFT, CURVE_RIGHT, CURVE_TOP, CURVE_BOTTOM = 66.0, 540.0, 420.0, 640.0  # the curves
LOWEST = 0.5  # the least value of the axis of the means


def main() -> None:
    torch.set_num_threads(1)
    result = run_demo(plan_demo())
    environment = Environment(loader=FileSystemLoader(HERE), autoescape=True, trim_blocks=True, lstrip_blocks=True)
    picture = environment.get_template("picture.svg.j2").render(
        rows=[_row(outcome, position) for position, outcome in enumerate(result.eights)],
        curves=[_curve(outcome) for outcome in result.eights if outcome.contender.steps == 100],
        ticks=[(_across(value), f"{value:.1f}") for value in (0.5, 0.6, 0.7, 0.8, 0.9, 1.0)],
        shares=[(_right(share), _up(share), f"{share:.0%}") for share in (0, 0.25, 0.5, 0.75, 1)],
        seeds=len(result.plan.seeds),
        box={
            "left": LEFT,
            "right": RIGHT,
            "top": TOP,
            "bottom": BOTTOM,
            "from": CURVE_LEFT,
            "to": CURVE_RIGHT,
            "floor": CURVE_BOTTOM,
        },
    )
    (HERE / "assets" / "demo.svg").write_text(picture, encoding="utf-8")


def _row(outcome: Outcome, position: int) -> dict[str, Any]:
    summary = outcome.summary("ap")
    return {
        "name": outcome.contender.name,
        "shade": SHADES[outcome.contender.name],
        "y": TOP + 30 + 46 * position,
        "low": _across(max(summary.low, LOWEST)),
        "high": _across(summary.high),
        "mean": _across(summary.mean),
        "text": f"{summary.mean:.2f}",
    }


def _curve(outcome: Outcome) -> dict[str, str]:
    recall, precision = mean_precision_curve(outcome)
    points = " ".join(f"{_right(x):.1f},{_up(y):.1f}" for x, y in zip(recall, precision, strict=True))
    return {"shade": SHADES[outcome.contender.name], "points": points}


def _across(value: float) -> float:
    return round(LEFT + (RIGHT - LEFT) * (value - LOWEST) / (1 - LOWEST), 1)


def _right(share: float) -> float:
    return round(CURVE_LEFT + (CURVE_RIGHT - CURVE_LEFT) * share, 1)


def _up(share: float) -> float:
    return round(CURVE_BOTTOM - (CURVE_BOTTOM - CURVE_TOP) * share, 1)


if __name__ == "__main__":
    main()
