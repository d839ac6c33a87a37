"""Bibtex, 159 labels per document ranked: NDCG losses and baselines with the same scorers and budgets."""
