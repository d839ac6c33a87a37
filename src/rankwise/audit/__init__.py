"""The theory behind the losses, checked on your own scores.

`bias`: how far values from mini-batches lie from the truth. `stability`: how far one bad example moves a loss.
`list_stability`: how far one example moves a trained model. `bounds`: what a loss value guarantees on the same data.
`generalisation`: what it guarantees on new data. `simulate`: the simulation of the SOPRC paper. Each gives a small
record whose `sentence` says what it means.
"""

from rankwise.audit._bias import Bias, Composition, Estimate, bias
from rankwise.audit._bounds import Bound, Bounds, Generalisation, GeneralisationBound, bounds, generalisation
from rankwise.audit._stability import Change, Distance, ListStability, Stability, list_stability, stability
from rankwise.audit.simulation import Case, Simulation, simulate

__all__ = [
    "Bias",
    "Bound",
    "Bounds",
    "Case",
    "Change",
    "Composition",
    "Distance",
    "Estimate",
    "Generalisation",
    "GeneralisationBound",
    "ListStability",
    "Simulation",
    "Stability",
    "bias",
    "bounds",
    "generalisation",
    "list_stability",
    "simulate",
    "stability",
]
