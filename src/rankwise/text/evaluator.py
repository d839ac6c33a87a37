"""An evaluator for sentence-transformers that knows grades."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from sentence_transformers.base.evaluation import BaseEvaluator
from torch import Tensor

from rankwise.checks import check_count
from rankwise.metrics import Evaluation, evaluate_grades
from rankwise.metrics.names import create_metrics
from rankwise.surrogates import Gain
from rankwise.text.inputs import check_texts, number_judgements

__all__ = ["GradedRetrievalEvaluator"]

# Scores held at once.
_CELLS = 1 << 22


class GradedRetrievalEvaluator(BaseEvaluator):  # type: ignore[misc]
    """Graded NDCG@k, MAP, recall@k, MRR of a bi-encoder that ranks a whole corpus, for the trainer's `evaluator`.

    Args:
        queries, corpus: texts by name.
        judgements: by the name of the query, grades by the name of the document; above 0 is relevant. Queries without a
            relevant document are left out.
        metrics: by name; the first chooses the best checkpoint.
        gain: of NDCG: "linear" as trec_eval has it, "exp2" or a function.
        name: put before the names of the metrics.
        chunk: texts that are encoded at once.

    Attributes:
        evaluation: of the last call, with values per query, to `compare` with another.

    Example:
        evaluator = GradedRetrievalEvaluator(queries, corpus, judgements, name="dev")
        evaluator(model)["dev_ndcg@10"]
    """

    def __init__(
        self,
        queries: Mapping[str, str],
        corpus: Mapping[str, str],
        judgements: Mapping[str, Mapping[str, float]],
        *,
        metrics: str | Sequence[str] = ("ndcg@10", "map", "recall@100", "mrr"),
        gain: Gain = "linear",
        name: str = "",
        chunk: int = 32,
    ) -> None:
        super().__init__()
        asked, documents = check_texts("queries", queries), check_texts("corpus", corpus)
        judged = {query: grades for query, grades in number_judgements(documents, judgements).items() if grades}
        for query in judged:
            if query not in asked:
                raise ValueError(f"judgements: expected judged queries among the queries, got {query!r}")
        self.names, self.queries = tuple(judged), [asked[query] for query in judged]
        self.corpus, self.judged = list(documents.values()), list(judged.values())
        create_metrics(metrics)
        self.metrics = (metrics,) if isinstance(metrics, str) else tuple(metrics)
        self.gain, self.name = gain, name
        self.chunk = check_count("chunk", chunk)
        self.primary_metric = self.metrics[0]
        self.evaluation: Evaluation | None = None

    def __call__(
        self, model: Any, output_path: str | None = None, epoch: int = -1, steps: int = -1
    ) -> dict[str, float]:
        """Return the metrics of a model by name."""
        options = {"batch_size": self.chunk, "convert_to_tensor": True, "show_progress_bar": False}
        vectors = model.encode_query(self.queries, **options)
        documents = model.encode_document(self.corpus, **options)
        grades = torch.zeros(len(vectors), len(documents))
        for row, judged in enumerate(self.judged):
            grades[row, list(judged)] = torch.tensor(list(judged.values()), dtype=grades.dtype)
        scores: list[Tensor] = [
            model.similarity(rows, documents).float().cpu() for rows in vectors.split(max(1, _CELLS // len(documents)))
        ]
        self.evaluation = evaluate_grades(torch.cat(scores), grades, self.metrics, gain=self.gain, bootstrap=0)
        metrics: dict[str, float] = self.prefix_name_to_metrics(self.evaluation.means, self.name)
        self.store_metrics_in_model_card_data(model, metrics, epoch, steps)
        return metrics
