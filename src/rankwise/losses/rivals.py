"""The old name of `rankwise.losses.baselines`."""

from rankwise.deprecation import renamed_attributes
from rankwise.losses import baselines

__getattr__ = renamed_attributes(
    __name__, {name: f"rankwise.losses.baselines.{name}" for name in baselines.__all__}, removed_in="0.3"
)
