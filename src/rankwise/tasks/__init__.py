"""Tasks: each ties data, model, loss, batches and metrics together."""

from rankwise.tasks.pap import PApTask
from rankwise.tasks.retrieval import RetrievalTask
from rankwise.tasks.tabular import TabularTask
from rankwise.tasks.task import Task

__all__ = ["PApTask", "RetrievalTask", "TabularTask", "Task"]
