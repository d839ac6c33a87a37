"""Losses compared fairly: the same scorers, settings and seeds for all, choices on validation, paired differences."""
