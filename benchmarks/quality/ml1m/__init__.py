"""MovieLens-1M, all items ranked: NDCG losses, baselines and EASE with the same scorers and budgets."""
