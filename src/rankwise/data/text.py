"""Text collections: the schema of a corpus, with its embeddings and keyword index, and queries as parts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.utils.data import Dataset

from rankwise.data.keywords import KeywordIndex, WordVectors, count_words
from rankwise.data.parts import Batch, require_labels
from rankwise.data.schema import Labels, with_tuples
from rankwise.data.sparse import SparseRows
from rankwise.data.text_files import (
    Judgements,
    Texts,
    find_collection,
    is_file_name,
    is_texts,
    read_judgements,
    read_texts,
)
from rankwise.extras import require

__all__ = ["TextCollection", "TextPart", "TextSchema", "cut_queries", "learn_texts"]

# Texts that are encoded at once.
ENCODED_AT_ONCE = 32


@dataclass(frozen=True)
class TextCollection:
    """Documents, queries and judgements, each in any form that `read_texts` and `read_judgements` take.

    Attributes:
        corpus: documents; None where a schema has them already.
        queries: None if the judgements hold the texts of the queries instead of their names.
        judgements: None for queries alone.
    """

    corpus: Any = None
    queries: Any = None
    judgements: Any = None


@dataclass(frozen=True)
class TextPart(Dataset[Batch]):
    """Queries on a corpus.

    Attributes:
        names, texts: of the queries.
        vectors: (Q, d) unit embeddings of the queries.
        counts: (Q, V) how often each word occurs in each query.
        index: the keyword index of the corpus.
        documents: N names of the documents.
        judged: (Q, N) grades; None if nothing is judged.
        pairs: (P, 2) the pairs of a query and a document that the source named, if it named any.
        grades: (P,) of those pairs, if known.
    """

    names: tuple[str, ...]
    texts: tuple[str, ...]
    vectors: Tensor
    counts: SparseRows
    index: KeywordIndex
    documents: tuple[str, ...]
    judged: SparseRows | None = None
    pairs: Tensor | None = None
    grades: Tensor | None = None

    def __len__(self) -> int:
        return len(self.names)

    def __getitem__(self, index: int) -> Batch:
        return self.__getitems__([index])

    def __getitems__(self, indices: Sequence[int]) -> Batch:
        rows = torch.as_tensor(indices, dtype=torch.int64)
        return Batch(self.vectors[rows], self.labels.dense(rows), rows, rows)

    @property
    def labels(self) -> SparseRows:
        """Return the grades (Q, N); raise an error if nothing is judged."""
        return require_labels(self.judged)

    @property
    def targets(self) -> Tensor | None:
        """Return the grades (P,) of the pairs that the source named."""
        return self.grades

    @property
    def query_ids(self) -> Tensor | None:
        """Return the query (P,) of each pair that the source named; None if it named none."""
        return None if self.pairs is None else self.pairs[:, 0]

    @property
    def query_names(self) -> tuple[str, ...] | None:
        """Return the names of the queries, if the source named pairs."""
        return None if self.pairs is None else self.names

    @property
    def row_names(self) -> tuple[str, ...]:
        """Return the documents of the pairs, or the queries if the source named no pairs."""
        if self.pairs is None:
            return self.names
        return tuple(self.documents[document] for document in self.pairs[:, 1].tolist())

    @property
    def output_names(self) -> tuple[str, ...] | None:
        """Return the documents, if every query is scored on all of them."""
        return self.documents if self.pairs is None else None

    def features(self, rows: Tensor) -> Tensor:
        """Return the embeddings of some queries and their keyword scores for all documents, (B, d + N)."""
        return torch.cat([self.vectors[rows], self.index.scores(self.counts, rows)], 1)

    def take(self, rows: Tensor) -> TextPart:
        """Return the part that holds these queries only, in this order, with all documents."""
        chosen = rows.tolist()
        return replace(
            self,
            names=tuple(self.names[row] for row in chosen),
            texts=tuple(self.texts[row] for row in chosen),
            vectors=self.vectors[rows],
            counts=self.counts.take(rows),
            judged=None if self.judged is None else self.judged.take(rows),
            pairs=None,
            grades=None,
        )

    def join(self, other: TextPart) -> TextPart:
        """Return the queries of this part and then those of another."""
        return replace(
            self,
            names=(*self.names, *other.names),
            texts=(*self.texts, *other.texts),
            vectors=torch.cat([self.vectors, other.vectors]),
            counts=self.counts.join(other.counts),
            judged=self.labels.join(other.labels),
            pairs=None,
            grades=None,
        )


@dataclass(frozen=True)
class TextSchema:
    """A corpus: names, embeddings and keyword index of its documents, and how new texts are encoded alike.

    Attributes:
        documents: names.
        encoder: a sentence-transformers model, by name or folder; None for static embeddings.
        index: BM25 scores.
        vectors: (N, d) unit embeddings of the documents.
        words: static embeddings, if `encoder` is None.
    """

    documents: tuple[str, ...]
    encoder: str | None
    index: KeywordIndex
    vectors: Tensor
    words: WordVectors | None = None

    def read(self, source: Any, *, labels: Labels = "required") -> TextPart:
        """Read queries on this corpus.

        With `labels="optional"` a table of queries and documents names the pairs to score; queries alone are scored on
        all documents.

        Args:
            source: a text or a list of texts; a .txt file with a query per line; JSON lines or a table of queries; a
                table of queries (their texts) and documents, perhaps with grades; a folder as for `find_collection`; or
                a `TextCollection`.
            labels: see above.
        """
        collection = _collection(source)
        pairs = None if collection.judgements is None else read_judgements(collection.judgements)
        if pairs is None and labels == "required":
            raise ValueError("data: expected judgements (queries, documents and grades), got queries alone")
        return self.part(pairs, None if collection.queries is None else read_texts(collection.queries))

    def part(self, pairs: Judgements | None, queries: Texts | None) -> TextPart:
        """Return the part of judged queries, or of all queries if nothing is judged.

        Args:
            pairs: queries by name, or by text if there are no `queries`.
            queries: names and texts.
        """
        if pairs is None:
            assert queries is not None
            return self._encode(queries)
        texts = dict(zip(queries.names, queries.texts, strict=True)) if queries else {}
        if queries and (unknown := [name for name in pairs.queries if name not in texts]):
            raise ValueError(
                f"judgements: expected names of the queries given, got {len(unknown)} others, such as {unknown[0]!r}"
            )
        part = self._encode(Texts(pairs.queries, tuple(texts.get(name, name) for name in pairs.queries)))
        numbers = {name: number for number, name in enumerate(self.documents)}
        if strange := [row for row, name in enumerate(pairs.documents) if name not in numbers]:
            count = len({pairs.documents[row] for row in strange})
            query = pairs.queries[int(pairs.rows[strange[0]])]
            raise ValueError(
                f"judgements: expected documents of the corpus, got {count} others, such as "
                f"{pairs.documents[strange[0]]!r} for the query {query[:40]!r}"
            )
        columns = torch.tensor([numbers[name] for name in pairs.documents], dtype=torch.int64)
        grades = torch.ones(len(columns)) if pairs.grades is None else pairs.grades
        judged = _grade_rows(pairs.rows, columns, grades, height=len(part), width=len(self.documents))
        return replace(part, judged=judged, pairs=torch.stack([pairs.rows, columns], 1), grades=pairs.grades)

    def embed(self, texts: Sequence[str], *, role: str = "query") -> Tensor:
        """Return the unit embeddings (N, d) of texts, before any head; `role` is "query" or "document"."""
        if self.words is None:
            assert self.encoder is not None
            return encode(self.encoder, texts, role)
        return self.words.embed(count_words(texts, self.index.vocabulary))

    def to_json(self) -> dict[str, Any]:
        """Return the schema as plain values, without vectors and scores."""
        return {"documents": list(self.documents), "encoder": self.encoder, "words": list(self.index.words)}

    def tensors(self) -> dict[str, Tensor]:
        """Return the embeddings of the documents, the entries of the keyword index, and the word vectors."""
        entries = self.index.entries
        tensors = {
            "vectors": self.vectors,
            "starts": entries.starts,
            "columns": entries.columns,
            "scores": entries.values,
        }
        return tensors if self.words is None else {**tensors, "words": self.words.vectors}

    @classmethod
    def from_saved(cls, values: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> TextSchema:
        """Return the schema that `to_json` and `tensors` describe."""
        plain = with_tuples(values)
        entries = SparseRows(tensors["starts"], tensors["columns"], tensors["scores"], len(plain["documents"]))
        words = WordVectors(tensors["words"]) if "words" in tensors else None
        if len(entries) != len(plain["words"]) or len(tensors["vectors"]) != len(plain["documents"]):
            raise ValueError(f"expected {len(plain['documents'])} documents, got vectors or scores of others")
        index = KeywordIndex(plain["words"], entries)
        return cls(plain["documents"], plain["encoder"], index, tensors["vectors"], words)

    def _encode(self, queries: Texts) -> TextPart:
        counts = count_words(queries.texts, self.index.vocabulary)
        vectors = self.embed(queries.texts) if self.words is None else self.words.embed(counts)
        return TextPart(queries.names, queries.texts, vectors, counts, self.index, self.documents)


def learn_texts(corpus: Any, *, encoder: str | None, dimensions: int, k1: float, b: float) -> TextSchema:
    """Read a corpus, encode its documents and build its keyword index.

    Args:
        corpus: see `read_texts`.
        encoder: a sentence-transformers model, by name or folder; None learns static embeddings from the corpus.
        dimensions: of static embeddings.
        k1, b: of BM25.

    Example:
        >>> schema = learn_texts(["a red wing", "blue water", "red water"], encoder=None, dimensions=2, k1=1.5, b=0.75)
        >>> part = schema.read(["water"], labels="optional")
        >>> (part.index.scores(part.counts, torch.arange(1))[0] > 0).tolist()
        [False, True, True]
    """
    names, texts = read_texts(corpus)
    index = KeywordIndex.build(texts, k1=k1, b=b)
    if encoder is not None:
        return TextSchema(names, encoder, index, encode(encoder, texts, "document"))
    counts = count_words(texts, index.vocabulary)
    words = WordVectors.learn(counts, dimensions)
    return TextSchema(names, None, index, words.embed(counts), words)


def encode(encoder: str, texts: Sequence[str], role: str) -> Tensor:
    """Return unit vectors (N, d) float32 of texts by a sentence-transformers model, with its prompt for the role."""
    model = _load_encoder(encoder)
    embed = model.encode_query if role == "query" else model.encode_document
    vectors: Tensor = embed(
        list(texts),
        batch_size=ENCODED_AT_ONCE,
        convert_to_tensor=True,
        normalize_embeddings=True,
        show_progress_bar=False,
    )
    # Encoders run in inference mode, whose tensors no training may use.
    return vectors.float().cpu().clone()


@lru_cache(maxsize=2)
def _load_encoder(encoder: str) -> Any:
    require("encoding texts by a sentence-transformers model", ("sentence_transformers",))
    from sentence_transformers import SentenceTransformer

    try:
        return SentenceTransformer(encoder)
    except (OSError, ValueError) as problem:
        said = " ".join(str(problem).split())
        raise ValueError(f"model.encoder: expected a sentence-transformers model, got {encoder!r} ({said})") from None


def cut_queries(part: TextPart, *, shares: Sequence[float], seed: int) -> list[TextPart]:
    """Cut a part at random into parts of so large shares of its queries; at least one query each.

    Args:
        part: with judgements.
        shares: of all queries, adding up to 1.
        seed: decides which queries go where.
    """
    if len(part) < len(shares):
        raise ValueError(f"data: expected at least {len(shares)} queries to cut into parts, got {len(part)}")
    order = torch.randperm(len(part), generator=torch.Generator().manual_seed(seed))
    sizes = [max(1, round(share * len(part))) for share in shares[1:]]
    bounds = torch.tensor([len(part) - sum(sizes), *sizes]).cumsum(0)[:-1].tolist()
    return [part.take(rows.sort().values) for rows in order.tensor_split(bounds)]


def _collection(source: Any) -> TextCollection:
    if isinstance(source, TextCollection):
        return source
    if isinstance(source, Texts | Mapping):
        return TextCollection(queries=source)
    if isinstance(source, Judgements):
        return TextCollection(judgements=source)
    if isinstance(source, str | Path) and Path(source).is_dir():
        files = find_collection(source)
        if files is None:
            raise ValueError(f"{source}: expected a folder with corpus, queries and judgements, got another")
        return TextCollection(files.corpus, files.queries, files.judgements.get("test", files.judgements["train"]))
    if isinstance(source, list | tuple) and all(isinstance(each, str) for each in source):
        return TextCollection(queries=source)
    if isinstance(source, str) and not is_file_name(source):
        return TextCollection(queries=[source])
    if is_texts(source):
        return TextCollection(queries=source)
    return TextCollection(judgements=source)


def _grade_rows(rows: Tensor, columns: Tensor, grades: Tensor, *, height: int, width: int) -> SparseRows:
    """Return grades (height, width) by pair; of a pair that is judged more than once the highest."""
    pairs, number = (rows * width + columns).unique(return_inverse=True)
    highest = torch.zeros(len(pairs)).scatter_reduce(0, number, grades.float(), "amax")
    kept = highest > 0
    pairs = pairs[kept]
    starts = torch.cat([torch.zeros(1, dtype=torch.int64), torch.bincount(pairs // width, minlength=height).cumsum(0)])
    return SparseRows(starts, pairs % width, highest[kept], width)
