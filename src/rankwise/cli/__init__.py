"""The command line program `rankwise`."""

from rankwise.cli.main import main

__all__ = ["main"]
