"""pAp@k on MovieLens-100K: every surrogate and its rivals, linear scorers, equal budgets."""
