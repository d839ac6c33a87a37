"""Bibtex, 159 labels per document ranked: NDCG losses and rivals with the same scorers and budgets."""
