"""The report of a training run: what came out, how it got there, and where it fails."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

import torch

from rankwise.metrics import Evaluation
from rankwise.problems.importance import Importance
from rankwise.problems.inspection import Inspection
from rankwise.report.content import Axis, Figure, Listing, Panel, Report, Section, Series, Table
from rankwise.report.embedding import embedding_section
from rankwise.report.examples import example_sections, plural
from rankwise.report.lists import ListFigures, figures_of, lists_by_value, random_order, top_of, worst_of
from rankwise.report.plots import axis, curve, plain, shares_axis, smoothed
from rankwise.report.sections import importance_section, memory_section, mix_section
from rankwise.training import History

__all__ = ["RunResult", "run_report"]

WORST = 10


@dataclass(frozen=True)
class RunResult:
    """A run that is over, or as far as it has come.

    Attributes:
        name: of the run.
        part: which data the figures are of: "test", or "validation" for a run that is not over.
        metric: by which choices were made.
        loss: its name.
        inspection: of the best weights on that part.
        history: of the training.
        steps: how many the run is to take in all.
        refit: what the refit did so far, see `rankwise.runs.training`; None if there is none to be done.
        facts, details: what was run, for the end of the page.
        importance: of the columns, if it was measured.
        weights: which were taken, see `EvaluationOptions`.
        settings: chosen on the validation part, see `Problem.complete_model`.
    """

    name: str
    part: str
    metric: str
    loss: str
    inspection: Inspection
    history: History
    steps: int
    facts: tuple[tuple[str, str], ...] = ()
    details: tuple[Listing, ...] = ()
    refit: Mapping[str, Any] | None = None
    importance: Importance | None = None
    weights: Literal["best", "last"] = "best"
    settings: Mapping[str, Any] = field(default_factory=dict)

    @property
    def over(self) -> bool:
        trained = self.history.stopped_early or len(self.history.losses) >= self.steps
        return trained and (self.refit is None or "steps" in self.refit)


def run_report(result: RunResult) -> Report:
    """Return the page, ready for `write_report`."""
    inspection = result.inspection
    figures = figures_of(inspection)
    sections = [
        _results(result),
        _training(result),
        _along_the_ranking(result, figures),
        *_list_by_list(result),
        _scores(result, figures),
        *embedding_section(inspection, inspection.metric_by_list(result.metric)),
        *example_sections(inspection, inspection.metric_by_list(result.metric)),
        *mix_section(result.settings, result.loss),
        *importance_section(result.importance),
        *memory_section(result.history),
    ]
    return Report(
        title=f"rankwise run: {result.name}",
        headline=_headline(result),
        summary=_summary(result),
        sections=tuple(sections),
        facts=result.facts,
        details=result.details,
    )


def _headline(result: RunResult) -> str:
    evaluation = result.inspection.evaluation
    mean, bounds = evaluation.means[result.metric], evaluation.intervals.get(result.metric)
    interval = "" if bounds is None else f" ({_percent(evaluation)} interval {bounds[0]:.3f} to {bounds[1]:.3f})"
    where = "on data it has not seen" if result.part == "test" else "on the validation data"
    return f"{result.metric} {mean:.3f} {where}{interval}."


def _summary(result: RunResult) -> str:
    history, evaluation = result.history, result.inspection.evaluation
    done = len(history.losses)
    if not result.over:
        return (
            f"The run is not over: {done:,} of {result.steps:,} steps are done"
            f"{'' if result.refit is None else ', and the refit is still to come'}. These are the best weights so far "
            f"(step {history.best_step}); the test data stay untouched until the end, so all figures are of the "
            "validation data, by which these weights were chosen, and a little too good."
        )
    lists = len(evaluation.query_ids)
    early = ", as nothing improved any more" if history.stopped_early else ""
    of = f"{lists:,} {plural(result.inspection.list_word, lists)}" if lists > 1 else "one ranking of all rows"
    if result.weights == "best":
        taken = f"step {history.best_step}, the best on the validation data,"
    else:
        taken = "the last step"
    if result.refit is not None:
        step = f"; step {result.refit['chosen_step']} was chosen on the validation data"
        return (
            f"Trained with {result.loss} for {done:,} steps in {_time(history.seconds)}{early}"
            f"{step if result.weights == 'best' else ''}. Then trained again from the same seed on training and "
            f"validation data together, for {result.refit['steps']:,} steps in "
            f"{_time(result.refit['seconds'])}. These weights are judged here on {of} of the {result.part} data."
        )
    return (
        f"Trained with {result.loss} for {done:,} steps in {_time(history.seconds)}{early}. The weights of {taken} are "
        f"judged here on {of} of the {result.part} data."
    )


def _results(result: RunResult) -> Section:
    evaluation, lists = result.inspection.evaluation, plural(result.inspection.list_word, 2)
    several = len(evaluation.query_ids) > 1
    chance = random_order(result.inspection, evaluation.means)
    rows = tuple(
        (
            name,
            f"{mean:.4f}",
            _interval(evaluation.intervals.get(name)),
            f"{chance[name]:.4f}" if name in chance else "-",
            *([f"{evaluation.skipped[name]:,}"] if several else ()),
        )
        for name, mean in evaluation.means.items()
    )
    caption = (
        "All metrics go from 0 to 1; higher is better. interval: where the figure would plausibly lie for other data "
        "of the same kind. random order: what the metric reaches on average if the order is left to chance."
    )
    if several:
        caption += (
            f" left out: {lists} for which a metric is not defined, such as those without a relevant "
            f"{result.inspection.item_word}."
        )
    if evaluation.tied:
        caption += f" Tied scores in {evaluation.tied:.1%} of the {lists}." if several else " Some scores are tied."
    table = Table(
        (
            "metric",
            "mean" if several else "value",
            f"{_percent(evaluation)} interval",
            "random order",
            *(["left out"] if several else ()),
        ),
        rows,
        caption=caption,
        strong=list(evaluation.means).index(result.metric),
    )
    exact = Listing(
        "Exact definitions", "\n\n".join(f"{name}: {text}" for name, text in evaluation.definitions.items())
    )
    return Section("Result", _expectations(result), (table, exact))


def _expectations(result: RunResult) -> str:
    """Say how exact the figure is at the size of the part."""
    inspection, evaluation = result.inspection, result.inspection.evaluation
    text, bounds, lists = "", evaluation.intervals.get(result.metric), len(evaluation.query_ids)
    if bounds is not None and bounds[0] == bounds[0]:
        counted = f"{lists:,} {plural(inspection.list_word, lists)}"
        if lists == 1:
            labels = inspection.look(torch.zeros(1, dtype=torch.int64)).labels
            relevant = int((labels > 0).sum())
            counted = f"{relevant:,} relevant {plural(inspection.item_word, relevant)} of {labels.numel():,}"
        text = (
            f"Measured on {counted}: at this size the interval is {bounds[1] - bounds[0]:.3f} wide, and half of that "
            "takes about four times as many. Two models that differ by less are told apart pair by pair only: "
            "rankwise compare."
        )
    return text


def _training(result: RunResult) -> Section:
    history, metric = result.history, result.metric
    panels = []
    if history.losses:
        steps, means = smoothed(history.losses)
        panels.append(
            Panel(
                axis("step", [0, len(history.losses)], low=0),
                axis(f"loss ({result.loss}), training data", means),
                (curve(steps, means, "loss", (2, "solid")),),
                title="Loss",
            )
        )
    values = history.curve(metric)
    if values:
        series = [curve(history.steps, values, metric, (1, "solid"), markers=True)]
        taken = -1
        if result.weights == "best" and history.best_step is not None:
            taken = history.steps.index(history.best_step)
        series.append(Series("weights taken", (float(history.steps[taken]),), (values[taken],), 3, shape="dots"))
        panels.append(
            Panel(
                axis("step", [0, max(history.steps)], low=0),
                axis(f"{metric}, validation data", values),
                tuple(series),
                title="Metric",
            )
        )
    start = f", {metric} starts at {values[0]:.3f} and reaches {max(values):.3f}" if values else ""
    losses = history.losses
    falls = f"The loss goes from {losses[0]:.3g} to {losses[-1]:.3g}" if losses else "No step was taken yet"
    text = (
        "What was minimised and what was wanted should move against each other: the loss falls, the metric rises. A "
        "metric that falls while the loss still falls means overfitting: train shorter, or regularise."
    )
    figure = Figure(
        tuple(panels),
        alt=f"{falls}{start}.",
        caption="Loss: mean over a few steps each. Metric: measured now and then; the best weights were taken.",
    )
    return Section("Along the training", text, (figure,) if panels else ())


def _along_the_ranking(result: RunResult, figures: ListFigures) -> Section:
    inspection = result.inspection
    item, lists = inspection.item_word, plural(inspection.list_word, 2)
    many = figures.looked > 1
    share = _share_looked(figures, len(inspection.evaluation.query_ids), lists, item)
    look = (1, "solid")
    if inspection.curve == "precision":
        half = float(figures.height[len(figures.height) // 2]) if len(figures.height) else float("nan")
        panel = Panel(
            shares_axis(f"recall: share of the relevant {plural(item, 2)} found so far"),
            shares_axis("precision: share of those so far that are relevant"),
            (curve(figures.along, figures.height, "precision", look),),
        )
        text = (
            f"Going down the ranking, how clean is it while more and more of the relevant {plural(item, 2)} are found? "
            "The area under the curve is the average precision."
        )
        caption = f"Mean over {share}." if many else "All rows in one ranking."
        alt = f"Precision against recall; {half:.0%} when half of the relevant ones are found."
    else:
        first, last = float(figures.height[0]), float(figures.height[-1])
        end = max(2.0, float(figures.along[-1]))
        ticks = tuple((float(tick), str(tick)) for tick in (1, 2, 5, 10, 20, 50, 100) if tick <= end)
        panel = Panel(
            Axis(f"first so many {plural(item, 2)}", 0.9, 1.1 * end, ticks, log=True),
            axis("NDCG of these", figures.height.tolist()),
            (curve(figures.along, figures.height, "NDCG", look, markers=True),),
        )
        text = (
            f"How good are the first {plural(item, 2)}? NDCG compares their relevance, the first positions counting "
            "most, with that of the best possible order, which gets 1."
        )
        caption = f"Mean over {share}. Note the axis: every mark about doubles the number."
        alt = f"NDCG of the first items: {first:.3f} at 1, {last:.3f} at {figures.along[-1]:.0f}."
    return Section("Along the ranking", text, (Figure((panel,), alt=alt, caption=caption, height=320),))


def _list_by_list(result: RunResult) -> list[Section]:
    inspection = result.inspection
    metric = inspection.metric_by_list(result.metric)
    order = lists_by_value(inspection, metric)
    if len(inspection.evaluation.query_ids) < 2 or not len(order):
        return []
    word, values = inspection.list_word, inspection.evaluation.per_query[metric]
    some = order.tolist() if len(order) <= 2 * WORST else worst_of(inspection, metric, WORST)
    rows = []
    for number in some:
        top = top_of(inspection, number, 0)
        counts = (f"{top.items:,}", f"{top.relevant:,}", f"{top.first:,}" if top.first else "-")
        rows.append((inspection.list_name(number), f"{float(values[number]):.3f}", *counts))
    all_shown = len(some) == len(order)
    table = Table(
        (word, metric, plural(inspection.item_word, 2), "relevant", "first at"),
        tuple(rows),
        caption=f"{'All' if all_shown else f'The {len(some)} worst'} {plural(word, 2)}, worst first. first at: the "
        "position of the first relevant one. Look at these first: wrong labels and odd cases gather here.",
    )
    known = values[order]
    blocks: tuple[Table | Figure, ...] = (table,)
    if not all_shown:
        blocks = (_distribution(known.tolist(), word, metric), table)
    perfect, none = int((known >= 1).sum()), int((known <= 0).sum())
    text = (
        f"The mean hides how different {plural(word, 2)} are. Of {len(order):,}, {perfect:,} are perfect and {none:,} "
        f"get nothing; half lie between {float(known.quantile(0.25)):.2f} and {float(known.quantile(0.75)):.2f}."
    )
    return [Section(f"{word.capitalize()} by {word}", text, blocks)]


def _distribution(values: list[float], word: str, metric: str) -> Figure:
    bins = 20
    counts = [0] * bins
    for value in values:
        counts[min(bins - 1, max(0, int(value * bins)))] += 1
    edges = plain([number / bins for number in range(bins + 1)])
    panel = Panel(
        Axis(metric, 0, 1, tuple((tick / 5, f"{tick / 5:.1f}") for tick in range(6))),
        axis(plural(word, 2), [0, *counts], low=0),
        (Series("", edges, plain(counts), 1, shape="steps"),),
    )
    most = counts.index(max(counts))
    peak = f"{most / bins:.2f} and {(most + 1) / bins:.2f}"
    return Figure(
        (panel,),
        alt=f"How many {plural(word, 2)} get which {metric}; most between {peak}.",
        caption=f"How many {plural(word, 2)} get which {metric}.",
        height=220,
    )


def _scores(result: RunResult, figures: ListFigures) -> Section:
    item = plural(result.inspection.item_word, 2)
    text = (
        f"How far apart the model keeps relevant and other {item}. The less the two overlap, the better; what counts "
        "is the order within a list, so a shift of all scores means nothing."
    )
    kinds = [("relevant", figures.relevant, 3), ("not relevant", figures.irrelevant, 2)]
    known = [(name, values.double(), colour) for name, values, colour in kinds if len(values)]
    if not known:
        return Section("Scores", text)
    ends = [(float(values.quantile(0.001)), float(values.quantile(0.999))) for _, values, _ in known]
    low, high = min(end[0] for end in ends), max(end[1] for end in ends)
    if high <= low:
        low, high = low - 0.5, high + 0.5
    bins = 40 if min(len(values) for _, values, _ in known) >= 200 else 20
    edges = [low + (high - low) * number / bins for number in range(bins + 1)]
    series = []
    for name, values, colour in known:
        counts = values.clamp(low, high).histc(bins, low, high) / len(values)
        series.append(Series(name, plain(edges), plain(counts), colour, "solid" if colour == 3 else "dash", "steps"))
    tallest = max(max(each.y) for each in series)
    heights = axis("share of its kind", [0, tallest], low=0)
    in_percent = tuple((at, f"{at:.3g}".rstrip()) for at, _ in heights.ticks)
    panel = Panel(
        axis("score", edges, low=low, high=high),
        Axis(heights.title, heights.low, heights.high, tuple((at, f"{100 * float(t):g} %") for at, t in in_percent)),
        tuple(series),
    )
    middles = " and ".join(f"{name} {float(values.median()):.3g}" for name, values, _ in known)
    return Section(
        "Scores",
        text,
        (
            Figure(
                (panel,),
                alt=f"Histograms of the scores; in the middle: {middles}.",
                caption=f"Each kind adds up to 100 %. Median scores: {middles}.",
            ),
        ),
    )


def _share_looked(figures: ListFigures, there: int, lists: str, item: str) -> str:
    which = "" if figures.counted == figures.looked else f" with a relevant {item}"
    if figures.looked == there:
        return f"{figures.counted:,} {lists}{which}"
    return f"{figures.counted:,} {lists}{which}, out of {there:,}, evenly spread"


def _percent(evaluation: Evaluation) -> str:
    return f"{100 * evaluation.confidence:g} %"


def _interval(bounds: tuple[float, float] | None) -> str:
    return "-" if bounds is None else f"{bounds[0]:.4f} to {bounds[1]:.4f}"


def _time(seconds: float) -> str:
    if seconds < 90:
        return f"{seconds:.1f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"
