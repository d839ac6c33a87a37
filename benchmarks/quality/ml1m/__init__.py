"""MovieLens-1M, all items ranked: NDCG losses, rivals and EASE with the same scorers and budgets."""
