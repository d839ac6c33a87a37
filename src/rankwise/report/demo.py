"""The report of the demonstration, and its one sentence."""

from __future__ import annotations

import platform
from importlib.metadata import PackageNotFoundError, version

from rankwise.report.content import Report, Section, Table
from rankwise.report.figures import Look, compare_figure, precision_recall_figure, progress_figure
from rankwise.training import Outcome, Summary, summarise
from rankwise.training.demo import DemoResult

__all__ = ["EIGHTS_LOOKS", "demo_report", "demo_sentences", "eights_table", "retrieval_table"]

# In the order of the plan: cross entropy, balanced, SOPRC, and the longer runs of the first two.
EIGHTS_LOOKS: tuple[Look, ...] = (
    ("var(--series-1)", "solid"),
    ("var(--series-2)", "solid"),
    ("var(--series-3)", "solid"),
    ("var(--series-1)", "dot"),
    ("var(--series-2)", "dash"),
)


def demo_report(result: DemoResult) -> Report:
    """Everything the demonstration found, ready for `write_report`."""
    looks = EIGHTS_LOOKS[: len(result.eights)]
    headline, retrieval_sentence = demo_sentences(result)
    return Report(
        title="rankwise demo",
        headline=headline,
        summary="The same small network was trained on hand-written digits with different losses: those in common use, "
        "and SOPRC, which trains directly for average precision, the figure the result is judged by.",
        sections=(
            Section(
                "Finding the eights",
                "612 training images, only 12 of them eights. The model ranks 835 test images; the 112 eights among "
                "them should come first. Average precision (AP) is the share of eights among the images ranked at least "
                "as high as an eight, averaged over the eights: 1 is a perfect ranking, a random one gets about 0.13.",
                (compare_figure(result.eights, looks, "ap", "average precision (test)"), eights_table(result)),
            ),
            Section(
                "Along the ranking",
                "How clean the top of the list is, and how long it stays so.",
                (precision_recall_figure(result.eights, looks),),
            ),
            Section(
                "Along the training",
                "How fast each loss gets there.",
                (progress_figure(result.eights, looks, "ap", "average precision"),),
            ),
            Section(
                "Finding the same digit",
                "Each of 1,397 test images asks for the others of its digit; the network turns an image into a vector "
                "and neighbours are found by angle. It learnt from 20 images of each digit. " + retrieval_sentence,
                (retrieval_table(result),),
            ),
        ),
        facts=_facts(result),
    )


def demo_sentences(result: DemoResult) -> tuple[str, str]:
    """What was seen, in one sentence for each of the two problems, whatever it was."""
    plain, balanced, direct, *longer = result.eights
    gap = _difference(direct, plain, "ap")
    first = (
        f"Same budget, same data: SOPRC ranks the eights with an average precision of {_mean(direct, 'ap'):.2f}, "
        f"cross entropy with {_mean(plain, 'ap'):.2f} ({_in_words(gap)}), "
        f"balanced cross entropy with {_mean(balanced, 'ap'):.2f}"
    )
    if longer:
        means = " and ".join(f"{_mean(outcome, 'ap'):.2f}" for outcome in longer)
        first += f"; with four times the steps the two reach {means}"
    pixels, classifier, direct = result.retrieval
    best = max(result.retrieval, key=lambda outcome: _mean(outcome, "recall@1"))
    second = (
        f"SOPRC reaches a mean average precision (mAP) of {_mean(direct, 'map'):.2f}, the features of a cross entropy "
        f"classifier {_mean(classifier, 'map'):.2f}, raw pixels {_mean(pixels, 'map'):.2f}; "
        f"the single nearest image (recall@1) is most often right with {best.contender.name}."
    )
    return first + ".", second


def eights_table(result: DemoResult) -> Table:
    """AP with interval, spread and time of every contender on the eights."""
    rows = []
    for outcome in result.eights:
        summary = summarise(outcome.values("ap"))
        rows.append(
            (
                outcome.contender.name,
                f"{summary.mean:.3f}",
                _interval(summary),
                _number(summary.std),
                str(outcome.contender.steps),
                f"{outcome.seconds:.2f}",
            )
        )
    return Table(
        ("loss", "AP", "95 % interval", "std", "steps", "s / run"),
        tuple(rows),
        caption=f"Test AP, mean over {len(result.plan.seeds)} seeds. Each seed cuts the data anew, so the intervals hold the "
        "luck of the draw of 12 eights too. s / run: training time of one run.",
        strong=2,
    )


def retrieval_table(result: DemoResult) -> Table:
    """mAP with interval and recall@1 of every contender in retrieval."""
    rows = []
    for outcome in result.retrieval:
        summary = summarise(outcome.values("map"))
        rows.append(
            (
                outcome.contender.name,
                f"{summary.mean:.3f}",
                _interval(summary),
                f"{_mean(outcome, 'recall@1'):.3f}",
                str(outcome.contender.steps),
                f"{outcome.seconds:.2f}",
            )
        )
    return Table(
        ("vectors", "mAP", "95 % interval", "recall@1", "steps", "s / run"),
        tuple(rows),
        caption="mAP: average precision of each image's ranking of all others, averaged over the images. recall@1: share of "
        "images whose nearest neighbour shows the same digit.",
        strong=2,
    )


def _facts(result: DemoResult) -> tuple[tuple[str, str], ...]:
    plan = result.plan
    rates = ", ".join(f"{rate:g}" for rate in plan.rates)
    chosen = "; ".join(
        f"{outcome.contender.name}: {', '.join(f'{trial.learning_rate:g}' for trial in outcome.trials)}"
        for outcome in (*result.eights, *result.retrieval)
        if outcome.contender.steps
    )
    return (
        ("Data", "scikit-learn's bundled digits: 1,797 images of 8 x 8 pixels"),
        ("Eights", "12 eights and 600 others to train, 50 and 300 for choices, 112 and 723 to test"),
        ("Same digit", "20 images of each digit to train, 20 for choices, the other 1,397 to test, all against all"),
        ("Network", "one hidden layer of 64 units; one score per image, or a vector of 32 numbers"),
        (
            "Budget",
            f"{plan.eights[0].steps} steps of 64 images (60 in retrieval), AdamW, cosine schedule; the rows marked "
            "4 x steps get four times as many",
        ),
        (
            "Batches",
            "cross entropy: shuffled images; balanced cross entropy and SOPRC: the same 8 eights and 56 others; in "
            "retrieval: the same 6 images of each digit for both",
        ),
        ("SOPRC", "default options"),
        ("Learning rate", f"each run chose the best of {rates} on its validation images, never on test images"),
        ("Chosen", chosen),
        ("Seeds", ", ".join(map(str, plan.seeds))),
        ("Versions", _versions()),
    )


def _versions() -> str:
    names = ("rankwise", "torch", "lightning-fabric", "scikit-learn")
    return ", ".join([f"Python {platform.python_version()}", *(f"{name} {_version(name)}" for name in names)])


def _version(name: str) -> str:
    if name == "rankwise":
        from rankwise import __version__

        return __version__
    try:
        return version(name)
    except PackageNotFoundError:
        return "unknown"


def _difference(a: Outcome, b: Outcome, metric: str) -> Summary:
    return summarise([x - y for x, y in zip(a.values(metric), b.values(metric), strict=True)])


def _in_words(gap: Summary) -> str:
    size = f"{abs(gap.mean):.2f} {'lower' if gap.mean > 0 else 'higher'}"
    if not gap.low <= gap.high:
        return f"{size} with this one seed"
    low, high = sorted((abs(gap.low), abs(gap.high)))
    if gap.low <= 0 <= gap.high:
        return f"{size}, but not beyond chance"
    return f"{size}, 95 % interval {low:.2f} to {high:.2f}"


def _mean(outcome: Outcome, metric: str) -> float:
    return summarise(outcome.values(metric)).mean


def _interval(summary: Summary) -> str:
    return f"{summary.low:.3f} - {summary.high:.3f}" if summary.low <= summary.high else "-"


def _number(value: float) -> str:
    return f"{value:.3f}" if value == value else "-"
