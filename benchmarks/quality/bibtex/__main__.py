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
from rankwise.data import MultiLabelSplit, cut_multilabel, read_arff
from rankwise.losses.rivals import SquaredErrorLoss
from rankwise.tasks import MultilabelTask
from rankwise.training import adamw, cosine, fit

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


class TaskWithSquares(MultilabelTask):
    def build_loss(self) -> nn.Module:
        return WithSquares(super().build_loss())


@cache
def load_split(fitted: str) -> MultiLabelSplit:
    """The validation part is cut off once and for all; for "all" the training part holds it as well."""
    folder = find_data("bibtex")
    everything = read_arff(folder / "bibtex-train.arff")
    train, validation = cut_multilabel(everything, shares=(0.85, 0.15), seed=0)
    return MultiLabelSplit(everything if fitted == "all" else train, validation, read_arff(folder / "bibtex-test.arff"))


def run(key: Key, method: Method | None) -> tuple[Figures, Tensor | None]:
    assert method is not None
    started = time.perf_counter()
    task = (TaskWithSquares if method.name.endswith("+ squares") else MultilabelTask)(
        load_split(key.fitted), method.loss, method.options, hidden=(), dropout=0.0, batch_size=BATCH, metrics=METRICS
    )
    model = fit(
        task,
        steps=EPOCHS * len(task.train_loader(key.seed)),
        optimiser=adamw(key.rate, weight_decay=key.decay),
        schedule=cosine,
        seed=key.seed,
    ).model
    seconds = time.perf_counter() - started
    figures = {"train": task.evaluate(model, "train")[METRICS[0]], "seconds": seconds}
    if key.fitted == "train":
        return {**figures, "validation": task.evaluate(model, "validation")[METRICS[0]]}, None
    test = task.judge(model, "test")
    return {**figures, **test.means}, test.per_query[METRICS[0]].float()


PLAN = Plan(ABOUT, scorers=("linear",), methods=METHODS, settings=SETTINGS, seeds=SEEDS, metrics=METRICS, run=run)


if __name__ == "__main__":
    run_plan(PLAN, Path(__file__).parent)
