"""Ranking losses and evaluation for sentence-transformers. Needs `pip install "rankwise[text]"`."""

from rankwise.text.corpus_loss import CorpusRankingLoss
from rankwise.text.evaluator import GradedRetrievalEvaluator
from rankwise.text.list_loss import CrossEncoderListLoss

__all__ = ["CorpusRankingLoss", "CrossEncoderListLoss", "GradedRetrievalEvaluator"]
