"""Which loss ranks the labels of Bibtex best? `python -m benchmarks.quality.bibtex [--slow] [--minutes M]`.

Needs `bibtex` under RANKWISE_DATA.
"""

from __future__ import annotations

import time
from functools import cache
from pathlib import Path

from torch import Tensor, nn

from benchmarks.find import find_data
from benchmarks.quality.grid.command import run_plan
from benchmarks.quality.grid.plan import Figures, Key, Method, Plan
from rankwise.data import SparsePart, SparseSchema, Split, cut_multilabel, read_arff
from rankwise.losses.baselines import SquaredErrorLoss
from rankwise.problems import MultiLabel
from rankwise.training import fit

EPOCHS, BATCH = 10, 128
METRICS = ("ndcg@5", "ndcg@3", "precision@1", "precision@3")
SETTINGS = ((1e-2, 0.1), (3e-2, 0.1), (1e-1, 0.1), (3e-2, 0.5))
SEEDS = (0, 1)

METHODS = (
    Method("SONG", "song", ours=True),
    Method("SONG, shift 3", "song", {"discount_shift": 3}, ours=True),
    Method("K-SONG 5", "k-song", {"k": 5}, ours=True),
    Method("softmax (SOLC)", "softmax"),
    Method("cross entropy", "cross-entropy"),
    Method("BPR", "bpr"),
    Method("LambdaRank", "lambdarank"),
    Method("ApproxNDCG", "approx-ndcg"),
    Method("ListNet", "listnet"),
    Method("squared error", "squared-error"),
    Method("SONG, shift 3, + squares", "song", {"discount_shift": 3}, ours=True),
    Method("softmax + squares", "softmax"),
    Method("ListNet + squares", "listnet"),
)
# How much the squared error weighs beside a loss between 0 and 1.
SQUARES = 30.0

ABOUT = (
    "`python -m benchmarks.quality.bibtex`: Bibtex (4,880 + 2,515 documents, 1,836 words, 159 labels), all labels of "
    "each document ranked by a linear scorer of its words. Of the "
    f"training documents 15 %, the same for all, are the validation part. {EPOCHS} epochs of {BATCH} documents a step, "
    "AdamW with a cosine schedule; learning rate and weight decay are chosen by NDCG@5 on validation with the first "
    "seed; then everything is fitted again, to training and validation documents together, and judged on the test "
    f"part. With whole lists of 0 and 1 SOLC is the softmax loss. + squares: the loss and {SQUARES:g} times the "
    "squared error together."
)


class WithSquares(nn.Module):
    """A loss plus the squared error of the same scores."""

    def __init__(self, loss: nn.Module) -> None:
        super().__init__()
        self.loss, self.squares = loss, SquaredErrorLoss()

    def forward(
        self,
        scores: Tensor,
        labels: Tensor,
        *,
        query_ids: Tensor | None,
        sample_ids: Tensor | None,
        previous_scores: Tensor | None,
    ) -> Tensor:
        value: Tensor = self.loss(scores, labels, query_ids=query_ids)
        return value + SQUARES * self.squares(scores, labels, query_ids=query_ids)


class MultiLabelWithSquares(MultiLabel):
    """The problem with the squared error added to its loss."""

    def build_loss(self, schema: SparseSchema, train: SparsePart, *, steps: int) -> nn.Module:
        return WithSquares(super().build_loss(schema, train, steps=steps))


@cache
def load_split(fitted: str) -> Split[SparsePart]:
    """Return the parts; the validation part is always the same, and for "all" the training part holds it as well."""
    folder = find_data("bibtex")
    everything = read_arff(folder / "bibtex-train.arff")
    train, validation = cut_multilabel(everything, shares=(0.85, 0.15), seed=0)
    return Split(everything if fitted == "all" else train, validation, read_arff(folder / "bibtex-test.arff"))


def run(key: Key, method: Method | None) -> tuple[Figures, Tensor | None]:
    assert method is not None
    started, split = time.perf_counter(), load_split(key.fitted)
    kind = MultiLabelWithSquares if method.name.endswith("+ squares") else MultiLabel
    problem = kind.model_validate(
        {
            "loss": {"name": method.loss, **method.options},
            "model": {"hidden": (), "dropout": 0.0, "ridge": None},
            "batches": {"size": BATCH},
            "metrics": METRICS,
            "optimiser": {"learning_rate": key.rate, "weight_decay": key.decay},
            "budget": {"epochs": EPOCHS},
            "evaluation": {"every": None, "weights": "last"},
        }
    )
    model = fit(problem, SparseSchema.of(split.train), split, seed=key.seed).model
    seconds = time.perf_counter() - started
    figures = {"train": problem.evaluate(model, split.train).means[METRICS[0]], "seconds": seconds}
    if key.fitted == "train":
        return {**figures, "validation": problem.evaluate(model, split.part("validation")).means[METRICS[0]]}, None
    test = problem.evaluate(model, split.part("test"))
    return {**figures, **test.means}, test.per_query[METRICS[0]].float()


PLAN = Plan(ABOUT, scorers=("linear",), methods=METHODS, settings=SETTINGS, seeds=SEEDS, metrics=METRICS, run=run)


if __name__ == "__main__":
    run_plan(PLAN, Path(__file__).parent)
