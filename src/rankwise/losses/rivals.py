"""Deprecated name of `rankwise.losses.baselines`."""

from rankwise.deprecation import renamed_attributes
from rankwise.losses import baselines

_NEW_NAMES = {name: name for name in baselines.__all__} | {"CrossEntropyLoss": "BinaryCrossEntropyLoss"}

__getattr__ = renamed_attributes(
    __name__, {old: f"rankwise.losses.baselines.{new}" for old, new in _NEW_NAMES.items()}, removed_in="0.3"
)
