"""Rehearsals: what a recipe costs, measured on made data of its true shape."""

from rankwise.rehearsal.layouts import LAYOUTS, Made, make_data
from rankwise.rehearsal.measure import Rehearsal, rehearse

__all__ = ["LAYOUTS", "Made", "Rehearsal", "make_data", "rehearse"]
