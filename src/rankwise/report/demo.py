"""The report of the demonstration, and its one sentence."""

from __future__ import annotations

from rankwise.problems.demo import DemoResult
from rankwise.problems.trials import Outcome, Summary, summarise
from rankwise.report.content import Report, Section, Table
from rankwise.report.figures import compare_figure, precision_recall_figure, progress_figure
from rankwise.report.plots import Look
from rankwise.report.write import versions

__all__ = ["LOOKS", "demo_report", "demo_sentences", "eights_table", "retrieval_table"]

LOOKS: dict[str, Look] = {
    "cross entropy": (1, "solid"),
    "cross entropy 4x": (1, "dot"),
    "balanced cross entropy": (2, "solid"),
    "balanced cross entropy 4x": (2, "dash"),
    "SOPRC": (3, "solid"),
}


def demo_report(result: DemoResult) -> Report:
    """Return the report of the demonstration, ready for `write_report`."""
    looks = [LOOKS[outcome.contender.name] for outcome in result.eights]
    headline, fuller, retrieval = demo_sentences(result)
    return Report(
        title="rankwise demo",
        headline=headline,
        summary="The same small network was trained on hand-written digits with different losses: those in common use, "
        "and SOPRC, which trains directly for average precision, the figure the result is judged by. " + fuller,
        sections=(
            Section(
                "Finding the eights",
                "612 training images, only 12 of them eights. The model ranks 835 test images; the 112 eights among "
                "them should come first. Average precision (AP): at each eight, the share of eights among all images "
                "down to it; then the mean over the eights. 1 is a perfect ranking, a random one gets about 0.13.",
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
                "and neighbours are found by angle. It learnt from 20 images of each digit. " + retrieval,
                (retrieval_table(result),),
            ),
        ),
        facts=_facts(result),
    )


def demo_sentences(result: DemoResult) -> tuple[str, str, str]:
    """Return three sentences on the results: on the eights, on longer training, on retrieval."""
    eights = {outcome.contender.name: outcome for outcome in result.eights}
    direct, plain = eights["SOPRC"], eights["cross entropy"]
    gaps = [ours - theirs for ours, theirs in zip(direct.values("ap"), plain.values("ap"), strict=True)]
    won = sum(gap > 0 for gap in gaps)
    seeds = len(result.plan.seeds)
    steps = direct.contender.steps
    first = (
        f"In {steps} steps SOPRC ranks the eights with an average precision of {_mean(direct, 'ap'):.2f}, "
        f"cross entropy with {_mean(plain, 'ap'):.2f}."
    )
    fuller = (
        f"SOPRC was ahead with {won} of {seeds} seeds{_gap(summarise(gaps))}. Cross entropy that weighs both classes "
        f"alike, on batches of the same mixture, gets {_mean(eights['balanced cross entropy'], 'ap'):.2f}"
    )
    if "cross entropy 4x" in eights:
        longer = [_mean(eights[name], "ap") for name in ("cross entropy 4x", "balanced cross entropy 4x")]
        fuller += f"; given four times the steps the two cross entropies reach {longer[0]:.2f} and {longer[1]:.2f}"
    pixels, classifier, embedder = result.retrieval
    nearest = max(result.retrieval, key=lambda outcome: _mean(outcome, "recall@1"))
    retrieval = (
        f"In retrieval SOPRC reaches a mean average precision (mAP) of {_mean(embedder, 'map'):.2f}, the features of a "
        f"cross entropy classifier {_mean(classifier, 'map'):.2f}, raw pixels {_mean(pixels, 'map'):.2f}; the single "
        f"nearest image is most often right with {nearest.contender.name}."
    )
    return first, fuller + ".", retrieval


def eights_table(result: DemoResult) -> Table:
    """Return a table of AP with interval, spread and time of every contender on the eights."""
    rows = []
    for outcome in result.eights:
        summary = outcome.summary("ap")
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
        caption=f"AP on the test images, mean over {len(result.plan.seeds)} seeds, with the standard deviation (std). "
        "Each seed cuts the data anew, so the intervals hold the luck of the draw of 12 eights too. s / run: "
        "seconds to train once. 4x: given four times the steps.",
        strong=len(rows) - 1,
    )


def retrieval_table(result: DemoResult) -> Table:
    """Return a table of mAP with interval and recall@1 of every contender in retrieval."""
    rows = []
    for outcome in result.retrieval:
        summary = outcome.summary("map")
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
        caption="mAP: average precision of each image's ranking of all others, averaged over the images. recall@1: the "
        "share of images whose nearest neighbour shows the same digit.",
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
            f"{plan.eights[0].steps} steps of 64 images (60 in retrieval), AdamW, cosine schedule; the rows marked 4x "
            "get four times as many",
        ),
        (
            "Batches",
            "cross entropy: shuffled images; balanced cross entropy and SOPRC: 8 eights and 56 others; in retrieval: "
            "6 images of each digit, for both",
        ),
        ("SOPRC", "default options"),
        (
            "Setting",
            "the small network and the short budget were picked for this demo, with test results in sight, as a "
            "setting where the losses differ; in trials with two wider hidden layers cross entropy came level",
        ),
        ("Learning rate", f"each run chose the best of {rates} on its validation images, never on test images"),
        ("Chosen", chosen),
        ("Seeds", ", ".join(map(str, plan.seeds))),
        ("Versions", versions("torch", "lightning-fabric", "scikit-learn")),
    )


def _gap(gap: Summary) -> str:
    """Return the mean difference with its interval, and whether that leaves room for no difference at all."""
    if not gap.low <= gap.high:
        return ""
    doubt = ", so no difference is not ruled out" if gap.low <= 0 <= gap.high else ""
    return f" (mean difference {gap.mean:+.2f}, 95 % interval {gap.low:+.2f} to {gap.high:+.2f}{doubt})"


def _mean(outcome: Outcome, metric: str) -> float:
    return outcome.summary(metric).mean


def _interval(summary: Summary) -> str:
    return f"{summary.low:.3f} - {summary.high:.3f}" if summary.low <= summary.high else "-"


def _number(value: float) -> str:
    return f"{value:.3f}" if value == value else "-"
