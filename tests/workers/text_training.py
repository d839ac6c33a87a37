"""Train a tiny bi-encoder or cross-encoder with sentence-transformers' trainers, in a process of its own."""

from __future__ import annotations

import os
import warnings
from pathlib import Path

import torch
from safetensors.torch import save_file

from rankwise.losses import NDCGLoss
from workers.encoders import make_cross_encoder, make_encoder
from workers.texts import make_texts

LISTS = (5, 3, 8)  # documents of the lists of a cross-encoder, in turn


def collection():
    """Return documents and queries by name, and judgements by query."""
    documents, queries, pairs = make_texts(topics=4, each=5, queries=16)
    judgements: dict[str, dict[str, int]] = {name: {} for name in queries}
    for query, document, grade in pairs:
        judgements[query][document] = grade
    return documents, queries, judgements


def lists(documents, queries, judgements):
    """Return queries with lists of 5, 3 or 8 documents and their grades."""
    names = list(documents)
    rows = {"query": [], "docs": [], "labels": []}
    for number, query in enumerate(queries):
        chosen = [names[(3 * number + each) % len(names)] for each in range(LISTS[number % len(LISTS)])]
        rows["query"].append(queries[query])
        rows["docs"].append([documents[name] for name in chosen])
        rows["labels"].append([judgements[query].get(name, 0) for name in chosen])
    return rows


def train(kind: str, folder: str, runs: list[tuple[str, int, str]], batch: int, precision: str = "double") -> int:
    """Train for each (name, steps, name of the run to go on with); write the weights to NAME.safetensors."""
    warnings.simplefilter("ignore")
    if precision == "double":
        torch.set_default_dtype(torch.float64)
    for name, steps, before in runs:
        trainer = (bi_encoder if kind == "bi" else cross_encoder)(Path(folder), name, steps, batch, precision)
        resumed = None if not before else str(max(Path(folder, before).glob("checkpoint-*"), key=_step))
        if before:
            trainer.args.output_dir = str(Path(folder, before))
        result = trainer.train(resume_from_checkpoint=resumed)
        assert result.training_loss == result.training_loss
        if trainer.is_world_process_zero():
            weights = {key: value.detach().clone() for key, value in trainer.model.state_dict().items()}
            if kind == "bi":
                weights["loss.documents"] = trainer.loss.documents.clone()
            save_file(weights, Path(folder, f"{name}.safetensors"))
    return 0


def _step(path: Path) -> int:
    return int(path.name.rpartition("-")[2])


def _arguments(kind, out: Path, steps: int, batch: int, precision: str):
    return kind(
        str(out),
        max_steps=steps,
        per_device_train_batch_size=batch,
        learning_rate=1e-2,
        lr_scheduler_type="constant",
        save_strategy="steps",
        save_steps=3,
        logging_steps=1,
        report_to="none",
        use_cpu=True,
        disable_tqdm=True,
        bf16=precision == "bf16",
        max_grad_norm=0.0,
        seed=0,
    )


def bi_encoder(folder: Path, name: str, steps: int, batch: int, precision: str):
    """Return a trainer of a bi-encoder with whole-corpus lists."""
    from sentence_transformers import (
        SentenceTransformer,
        SentenceTransformerTrainer,
        SentenceTransformerTrainingArguments,
    )

    from rankwise.text import CorpusRankingLoss, GradedRetrievalEvaluator

    documents, queries, judgements = collection()
    where = make_encoder(folder / f"{name}-start-{os.getpid()}", [*documents.values(), *queries.values()])
    model = SentenceTransformer(str(where), device="cpu")
    if precision == "double":
        model.double()
    loss = CorpusRankingLoss(
        model, documents, judgements, NDCGLoss(margin=2.0, discount_shift=30.0), refresh=4, best=2, chunk=3
    )
    return SentenceTransformerTrainer(
        model,
        _arguments(SentenceTransformerTrainingArguments, folder / name, steps, batch, precision),
        train_dataset=loss.dataset(queries),
        loss=loss,
        evaluator=GradedRetrievalEvaluator(queries, documents, judgements),
        callbacks=[loss.callback],
    )


def cross_encoder(folder: Path, name: str, steps: int, batch: int, precision: str):
    """Return a trainer of a cross-encoder on ragged lists."""
    from datasets import Dataset
    from sentence_transformers.cross_encoder import CrossEncoder, CrossEncoderTrainer, CrossEncoderTrainingArguments

    from rankwise.text import CrossEncoderListLoss

    documents, queries, judgements = collection()
    where = make_cross_encoder(folder / f"{name}-start-{os.getpid()}", [*documents.values(), *queries.values()])
    model = CrossEncoder(str(where), num_labels=1, device="cpu")
    if precision == "double":
        model.double()
    return CrossEncoderTrainer(
        model,
        _arguments(CrossEncoderTrainingArguments, folder / name, steps, batch, precision),
        train_dataset=Dataset.from_dict(lists(documents, queries, judgements)),
        loss=CrossEncoderListLoss(model, "ndcg", chunk=4),
    )
