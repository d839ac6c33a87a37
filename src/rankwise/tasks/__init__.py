"""Tasks: each ties data, model, loss, batches and metrics together."""

from rankwise.tasks.detection import DetectionTask, DetectorModel
from rankwise.tasks.detection_loss import DetectionLoss
from rankwise.tasks.inspection import Box, Drawing, InspectableTask, Inspection, SeenLists
from rankwise.tasks.longtail import LongTailTask
from rankwise.tasks.multilabel import MultilabelTask
from rankwise.tasks.proposal_loss import ProposalLoss
from rankwise.tasks.recsys import RecsysTask
from rankwise.tasks.tabular import TabularTask
from rankwise.tasks.task import ScoringTask, Task

__all__ = [
    "Box",
    "DetectionLoss",
    "DetectionTask",
    "DetectorModel",
    "Drawing",
    "InspectableTask",
    "Inspection",
    "LongTailTask",
    "MultilabelTask",
    "ProposalLoss",
    "RecsysTask",
    "ScoringTask",
    "SeenLists",
    "TabularTask",
    "Task",
]
