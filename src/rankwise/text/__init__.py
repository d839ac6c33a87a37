"""Ranking losses and evaluation for sentence-transformers. Needs `pip install "rankwise[text]"`."""

from rankwise.extras import require

require("rankwise.text", ("sentence_transformers",))

from rankwise.text.corpus_loss import CorpusRankingLoss  # noqa: E402
from rankwise.text.evaluator import GradedRetrievalEvaluator  # noqa: E402
from rankwise.text.list_loss import CrossEncoderListLoss  # noqa: E402

__all__ = ["CorpusRankingLoss", "CrossEncoderListLoss", "GradedRetrievalEvaluator"]
