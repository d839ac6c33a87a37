"""A loss for cross-encoders over lists of documents of any lengths."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn

from rankwise.checks import check_count
from rankwise.distributed import world_size
from rankwise.losses import ListLoss, create_loss
from rankwise.text.encoding import run_in_chunks, unwrapped

__all__ = ["CrossEncoderListLoss"]

# Ids of lists of different processes differ by at least this.
_LISTS = 1 << 32


class CrossEncoderListLoss(nn.Module):
    """Any list loss of rankwise, for `CrossEncoderTrainer`: lists of any lengths, labels or grades.

    The training set has a column of queries, a column of lists of documents, and a column `labels` of lists of grades,
    as for the list losses of sentence-transformers. Several processes train as one would on the joined batch.

    Args:
        model: a `CrossEncoder` with one output.
        loss: a list loss, or the name of one: "listwise-cross-entropy" (softmax), "ndcg", "top-k-ndcg", ...
        chunk: pairs that are scored at once; the activations of one chunk are in memory at a time.
        options: of a loss given by name.

    Example:
        loss = CrossEncoderListLoss(model, "ndcg")
        trainer = CrossEncoderTrainer(model, args, train_dataset=dataset, loss=loss)
    """

    def __init__(
        self, model: nn.Module, loss: str | ListLoss = "listwise-cross-entropy", *, chunk: int = 32, **options: Any
    ) -> None:
        super().__init__()
        self.model = model
        if isinstance(loss, ListLoss) and options:
            raise TypeError(f"{next(iter(options))}: expected with the name of a loss, got it with a loss")
        created = create_loss(loss, **options) if isinstance(loss, str) else loss
        if not isinstance(created, ListLoss):
            raise TypeError(f"loss: expected a list loss or the name of one, got {type(created).__name__}")
        if unwrapped(model).num_labels != 1:
            raise ValueError(f"model: expected a cross-encoder with 1 output, got {unwrapped(model).num_labels}")
        self.loss = created
        self.chunk = check_count("chunk", chunk)

    def forward(
        self,
        inputs: Sequence[Sequence[Any]],
        labels: Sequence[Tensor] | None,
        prompt: str | None = None,
        task: str | None = None,
    ) -> Tensor:
        """Return the loss of a batch of lists.

        Args:
            inputs: B queries and B lists of documents.
            labels: B tensors of grades, one for each document.
            prompt, task: passed to the model's preprocessing.
        """
        if len(inputs) != 2 or labels is None or any(isinstance(each, str) for each in inputs[1]):
            raise ValueError(
                "train_dataset: expected a column of queries, one of lists of documents, and `labels`, lists of "
                f"grades, got {len(inputs)} columns of texts {'without' if labels is None else 'and'} labels"
            )
        queries, documents = inputs
        sizes = [len(each) for each in documents]
        if isinstance(labels, Tensor) or sizes != [len(each) for each in labels]:
            got = "one number each" if isinstance(labels, Tensor) else [len(each) for each in labels]
            raise ValueError(f"labels: expected lists of {sizes} grades, one for each document, got {got}")
        pairs = [(query, document) for query, each in zip(queries, documents, strict=True) for document in each]
        scores = run_in_chunks(self.model, self._tokenised(pairs, prompt, task), "scores").view(-1)
        ids = torch.repeat_interleave(torch.arange(len(sizes)), torch.tensor(sizes))
        if world_size() > 1:
            ids = ids + dist.get_rank() * _LISTS
        value: Tensor = self.loss(scores, torch.cat(list(labels)).to(scores.device), query_ids=ids.to(scores.device))
        return value

    def get_config_dict(self) -> dict[str, Any]:
        """Return the options, for a model card."""
        return {"loss": type(self.loss).__name__, "chunk": self.chunk}

    def _tokenised(
        self, pairs: Sequence[tuple[str, str]], prompt: str | None, task: str | None
    ) -> Iterator[Mapping[str, Any]]:
        inner = unwrapped(self.model)
        for first in range(0, len(pairs), self.chunk):
            tokens = inner.preprocess(pairs[first : first + self.chunk], prompt=prompt, task=task)
            yield {name: each.to(inner.device) if isinstance(each, Tensor) else each for name, each in tokens.items()}
