"""What people train with today, in the same form, to compare with."""

from rankwise.losses.rivals.cross_entropy import BalancedCrossEntropyLoss, CrossEntropyLoss

__all__ = ["BalancedCrossEntropyLoss", "CrossEntropyLoss"]
