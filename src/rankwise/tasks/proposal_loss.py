"""What Faster R-CNN is trained by: a ranking loss over the proposals of a batch, and the rest as usual."""

from __future__ import annotations

from torch import Tensor, nn
from torch.nn.functional import one_hot

from rankwise.checks import check_positive
from rankwise.losses import ListLoss
from rankwise.models import Sampled
from rankwise.tasks.class_lists import check_lists, pinned, rank_classes

__all__ = ["ProposalLoss"]


class ProposalLoss(nn.Module):
    """The sum of four losses over the sampled proposals of a batch of images.

        ranking + box_weight * box loss + proposal loss + bias_weight * (mean score of the positives)^2

    A proposal is positive for the class of the object that it overlaps most, if by half at least, and negative for all
    others. The box loss and the loss of the first stage are Faster R-CNN's own, see `FasterRCNNDetector`.

    Args:
        ranking: a loss over lists that takes columns (`lists="columns"`) if `lists` is "classes".
        classes: C.
        lists: "classes" ranks the proposals for each class apart, the negatives of a class being the background and the
            other classes; "all" ranks all pairs of a proposal and a class together, so that frequent classes count
            most; "balanced" does so with every class counting as the root of its positives in the batch.
        box_weight, bias_weight: of the second and the last term.

    Called as `loss(sampled)`, see `rankwise.models.Sampled`. After a call `skipped` says how many lists were left out
    because they had no positive proposal.
    """

    def __init__(
        self,
        ranking: nn.Module,
        classes: int,
        *,
        lists: str = "classes",
        box_weight: float = 2.0,
        bias_weight: float = 0.001,
    ) -> None:
        super().__init__()
        if not isinstance(ranking, ListLoss):
            raise TypeError(f"ranking: expected a list loss, got {type(ranking).__name__}")
        self.ranking, self.classes = ranking, classes
        self.lists = check_lists(lists, ranking)
        self.box_weight = check_positive("box_weight", box_weight, zero=True)
        self.bias_weight = check_positive("bias_weight", bias_weight, zero=True)

    @property
    def skipped(self) -> int:
        """How many lists of the last batch had no positive proposal."""
        return self.ranking.skipped

    def forward(self, sampled: Sampled) -> Tensor:
        """The loss, a scalar."""
        # The background, -1, comes first and is no class.
        truth = one_hot(sampled.labels + 1, self.classes + 1)[:, 1:].bool()
        value = rank_classes(self.ranking, self.lists, sampled.logits, truth)
        value = value + self.box_weight * sampled.box_loss + sampled.proposal_loss
        if self.bias_weight:
            value = value + self.bias_weight * pinned(sampled.logits, truth)
        return value
