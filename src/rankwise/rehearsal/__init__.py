"""Rehearsals and plans: what a recipe costs, measured here, on made data of its true shape or on many ranks."""

from rankwise.rehearsal.layouts import LAYOUTS, Made, make_data
from rankwise.rehearsal.many_ranks import Plan, RankCost, plan
from rankwise.rehearsal.measure import Rehearsal, rehearse

__all__ = ["LAYOUTS", "Made", "Plan", "RankCost", "Rehearsal", "make_data", "plan", "rehearse"]
