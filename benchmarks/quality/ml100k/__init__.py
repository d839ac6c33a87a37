"""pAp@k on MovieLens-100K: every surrogate and its baselines, linear scorers, equal budgets."""
