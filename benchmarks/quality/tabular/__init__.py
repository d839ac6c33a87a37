"""Average precision on imbalanced tables, by loss: equal budgets, folds, seeds, choices on validation."""
