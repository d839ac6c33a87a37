"""A loss for bi-encoders that ranks the whole corpus for each query."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist
from safetensors.torch import load_file, save
from torch import Tensor, nn
from torch.nn.functional import normalize
from transformers import TrainerCallback

from rankwise.checks import check_count, check_positive
from rankwise.distributed import gather_rows, own_share, world_size
from rankwise.files import write_whole
from rankwise.losses import ListLoss, create_loss
from rankwise.text.encoding import run_in_chunks, unwrapped
from rankwise.text.inputs import check_texts, number_judgements

if TYPE_CHECKING:
    from datasets import Dataset

__all__ = ["CorpusRankingLoss"]

MEMORY = "corpus_loss.safetensors"


class CorpusRankingLoss(nn.Module):
    """Rank all documents of a corpus for each query, for `SentenceTransformerTrainer`.

    The embeddings of all documents are kept. In each step the documents that matter most for the queries of the batch
    (relevant ones and the best-ranked others) are encoded with a gradient; the others count with the embedding they
    had. Now and then all are encoded anew. A query has any number of relevant documents, of any grades; none of them
    ever counts as irrelevant.

    Under an initialised process group all processes share the documents to encode, and train as one would on the joined
    batch.

    Args:
        model: the bi-encoder.
        corpus: texts of the documents by name.
        judgements: by the name of the query, grades by the name of the document; above 0 is relevant.
        loss: a list loss, or the name of one: "listwise-cross-entropy" (softmax) or "ndcg". Of cosines times `scale`:
            `NDCGLoss(margin=2, discount_shift=30)` has a margin of .1 of a cosine.
        scale: by which cosines are multiplied.
        relevant, best: how many relevant documents (the highest grades first) and how many others (the best-ranked
            first) are encoded with a gradient for each query.
        refresh: steps after which all documents are encoded anew.
        chunk: texts that are encoded at once.
        prompt: put before each document.

    Attributes:
        callback: for `callbacks=[loss.callback]`: saves the embeddings and the number of steps with each checkpoint, so
            that a resumed training goes on exactly as it would have. Without it all documents are encoded anew then.

    Example:
        loss = CorpusRankingLoss(model, corpus, judgements)
        trainer = SentenceTransformerTrainer(
            model, args, train_dataset=loss.dataset(queries), loss=loss, callbacks=[loss.callback]
        )
    """

    documents: Tensor
    step: Tensor

    def __init__(
        self,
        model: nn.Module,
        corpus: Mapping[str, str],
        judgements: Mapping[str, Mapping[str, float]],
        loss: str | ListLoss = "listwise-cross-entropy",
        *,
        scale: float = 20.0,
        relevant: int = 8,
        best: int = 4,
        refresh: int = 100,
        chunk: int = 32,
        prompt: str | None = None,
    ) -> None:
        super().__init__()
        self.model = model
        created = create_loss(loss) if isinstance(loss, str) else loss
        if not isinstance(created, ListLoss):
            raise TypeError(f"loss: expected a list loss or the name of one, got {type(created).__name__}")
        self.loss = created
        self.scale = check_positive("scale", scale)
        self.relevant, self.best = check_count("relevant", relevant), check_count("best", best, least=0)
        self.refresh, self.chunk = check_count("refresh", refresh), check_count("chunk", chunk)
        self.prompt = prompt
        texts = check_texts("corpus", corpus)
        self.texts = tuple(texts.values())
        judged = number_judgements(texts, judgements)
        self.queries, self.judged = tuple(judged), tuple(judged.values())
        width, weight = unwrapped(model).get_embedding_dimension(), next(model.parameters())
        dtype = torch.promote_types(weight.dtype, torch.float32)
        self.register_buffer("documents", torch.zeros(len(self.texts), width, dtype=dtype, device=weight.device))
        self.register_buffer("step", torch.tensor(0))
        self.callback = _SaveMemory(self)

    def dataset(self, queries: Mapping[str, str]) -> Dataset:
        """Return the training set: the text of each judged query with a relevant document, and its number as `label`.

        Args:
            queries: texts by name.
        """
        from datasets import Dataset

        texts = check_texts("queries", queries)
        if missing := [name for name in self.queries if name not in texts]:
            raise ValueError(f"queries: expected a text for every judged query, got none for {missing[0]!r}")
        rows = [number for number, grades in enumerate(self.judged) if grades]
        return Dataset.from_dict({"query": [texts[self.queries[row]] for row in rows], "label": rows})

    def forward(self, sentence_features: Iterable[Mapping[str, Any]], labels: Tensor) -> Tensor:
        """Return the loss of a batch.

        Args:
            sentence_features: the tokenised queries, as the trainer passes them; further columns are ignored.
            labels: (B,) numbers of the queries, see `dataset`.
        """
        numbers = self._check_numbers(labels)
        features = next(iter(sentence_features))
        vectors = self._embed(_split(features, len(numbers), self.chunk))
        if self.model.training:
            if int(self.step) % self.refresh == 0:
                self.encode_corpus()
            self.step += 1
        elif not bool(self.documents.any()):
            self.encode_corpus()
        grades = self._grades(numbers, vectors.device)
        scores = vectors @ self.documents.T
        if torch.is_grad_enabled():
            chosen = self._choose(scores.detach(), grades)
            fresh = self._encode_shared(chosen)
            scores = scores.index_copy(1, chosen, vectors @ fresh.T)
            if self.model.training:
                # The embeddings of before are part of the graph, so they are not written to.
                self.documents = self.documents.index_copy(0, chosen, fresh.detach().to(self.documents.dtype))
        value: Tensor = self.loss(self.scale * scores, grades)
        return value

    @torch.no_grad()
    def encode_corpus(self) -> None:
        """Encode all documents anew, in evaluation mode; several processes take a share each."""
        inner, rows = unwrapped(self.model), own_share(torch.arange(len(self.texts)))
        training = inner.training
        inner.eval()
        own = self._embed(self._tokenised(rows.tolist())) if len(rows) else self.documents[:0]
        inner.train(training)
        self.documents = gather_rows(own.to(self.documents.dtype))

    def get_config_dict(self) -> dict[str, Any]:
        """Return the options, for a model card."""
        names = ("scale", "relevant", "best", "refresh", "chunk")
        return {"loss": type(self.loss).__name__, **{name: getattr(self, name) for name in names}}

    def _check_numbers(self, labels: object) -> list[int]:
        """Return the numbers of the queries of a batch; refuse labels of another kind."""
        numbers = labels.tolist() if isinstance(labels, Tensor) else labels
        if not isinstance(numbers, list) or not all(
            isinstance(each, int) and 0 <= each < len(self.queries) for each in numbers
        ):
            raise ValueError(
                f"labels: expected numbers of the {len(self.queries)} judged queries, as the column `label` of "
                f"`loss.dataset(queries)` has them, got {numbers}"
            )
        return numbers

    def _embed(self, chunks: Iterator[Mapping[str, Any]]) -> Tensor:
        vectors = run_in_chunks(self.model, chunks, "sentence_embedding")
        return normalize(vectors.to(torch.promote_types(vectors.dtype, torch.float32)), dim=1)

    def _tokenised(self, rows: Sequence[int]) -> Iterator[Mapping[str, Any]]:
        inner = unwrapped(self.model)
        for first in range(0, len(rows), self.chunk):
            texts = [self.texts[row] for row in rows[first : first + self.chunk]]
            tokens = inner.preprocess(texts, prompt=self.prompt)
            yield {name: each.to(inner.device) if isinstance(each, Tensor) else each for name, each in tokens.items()}

    def _grades(self, queries: Sequence[int], device: torch.device) -> Tensor:
        """Return the grades (B, N) of all documents."""
        grades = torch.zeros(len(queries), len(self.texts))
        for row, query in enumerate(queries):
            judged = self.judged[query]
            grades[row, list(judged)] = torch.tensor(list(judged.values()), dtype=grades.dtype)
        return grades.to(device)

    def _choose(self, scores: Tensor, grades: Tensor) -> Tensor:
        """Return the documents to encode with a gradient, of the queries of all processes, in rising order."""
        # Of equal grades the document that is ranked last comes first.
        by_grade = (2 * grades - scores / 2).masked_fill(grades <= 0, -torch.inf)
        by_score = scores.masked_fill(grades > 0, -torch.inf)
        chosen = []
        for values, count in ((by_grade, self.relevant), (by_score, self.best)):
            top = values.topk(min(count, values.shape[1]), dim=1)
            chosen.append(top.indices[top.values > -torch.inf])
        rows: Tensor = gather_rows(torch.cat(chosen)).unique()
        return rows

    def _encode_shared(self, rows: Tensor) -> Tensor:
        """Return the embeddings of documents with a gradient; several processes encode a share each."""
        own = own_share(rows)
        vectors = self._embed(self._tokenised(own.tolist())) if len(own) else self.documents[:0]
        if world_size() == 1:
            return vectors
        joined: Tensor = _JoinShares.apply(vectors, len(rows))
        return joined


class _JoinShares(torch.autograd.Function):
    """Join the rows of all processes; the gradient of a row is the sum of what all processes have for it."""

    @staticmethod
    def forward(ctx: Any, own: Tensor, rows: int) -> Tensor:
        ctx.own = own_share(torch.arange(rows))
        return gather_rows(own.detach())

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        total = grad.contiguous()
        dist.all_reduce(total)
        return total[ctx.own.to(total.device)], None


class _SaveMemory(TrainerCallback):  # type: ignore[misc]
    """Save what the loss remembers beside each checkpoint of a trainer, and load it where a training goes on."""

    def __init__(self, loss: CorpusRankingLoss) -> None:
        self._loss = loss

    def on_save(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        if state.is_world_process_zero:
            memory = {"documents": self._loss.documents, "step": self._loss.step}
            tensors = {name: value.detach().cpu().contiguous().clone() for name, value in memory.items()}
            write_whole(self._path(args, state), save(tensors))

    def on_train_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        path = self._path(args, state)
        if state.global_step and path.is_file():
            for name, value in load_file(path).items():
                setattr(self._loss, name, value.to(self._loss.documents.device))

    @staticmethod
    def _path(args: Any, state: Any) -> Path:
        return Path(args.output_dir, f"checkpoint-{state.global_step}", MEMORY)


def _split(features: Mapping[str, Any], rows: int, size: int) -> Iterator[Mapping[str, Any]]:
    """Yield the tokenised texts in chunks of so many rows."""
    for first in range(0, rows, size):
        yield {
            name: each[first : first + size] if isinstance(each, Tensor) and each.ndim and len(each) == rows else each
            for name, each in features.items()
        }
