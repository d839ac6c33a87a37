"""rankwise: train what you measure."""

from rankwise import estimators, losses, samplers
from rankwise.losses import create_loss

__version__ = "0.1.0"

__all__ = ["create_loss", "estimators", "losses", "samplers"]
