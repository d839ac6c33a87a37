"""Training: the loop, checkpoints, fair comparisons, and the demonstration. Needs `pip install "rankwise[train]"`."""

from rankwise.training.checkpoints import Checkpoints, read_checkpoint
from rankwise.training.chunks import InChunks
from rankwise.training.devices import Place, make_fabric
from rankwise.training.history import History, Run, Step
from rankwise.training.interrupts import Interrupted
