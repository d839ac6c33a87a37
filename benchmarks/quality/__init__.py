"""How well models rank, by loss and option: equal budgets, several seeds, choices on validation."""
