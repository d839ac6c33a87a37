"""A small text collection in the layout of BEIR: documents of some topics, queries in their words, two grades."""

from __future__ import annotations

import json
import random
from pathlib import Path


def make_texts(topics: int = 6, each: int = 8, queries: int = 30, seed: int = 0):
    """Return documents and queries by name, and judged pairs (query, document, grade)."""
    draw = random.Random(seed)
    words = [[f"topic{topic}word{word}" for word in range(8)] for topic in range(topics)]
    common = [f"common{word}" for word in range(30)]
    documents = {
        f"d{number}": " ".join(draw.choices(words[number % topics], k=5) + draw.choices(common, k=10))
        for number in range(topics * each)
    }
    asked = {
        f"q{number}": " ".join(draw.choices(words[number % topics], k=2) + draw.choices(common, k=2))
        for number in range(queries)
    }
    pairs = [
        (f"q{query}", f"d{document}", 1 + document // topics % 2)
        for query in range(queries)
        for document in range(topics * each)
        if document % topics == query % topics
    ]
    return documents, asked, pairs


def write_beir(folder: Path, **sizes: int) -> Path:
    """Write a collection as BEIR has it, with judgements of the test part only."""
    documents, queries, pairs = make_texts(**sizes)
    (folder / "qrels").mkdir(parents=True)
    lines = [{"_id": name, "title": "", "text": text, "metadata": {}} for name, text in documents.items()]
    (folder / "corpus.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    lines = [{"_id": name, "text": text} for name, text in queries.items()]
    (folder / "queries.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    judged = "".join(f"{query}\t{document}\t{grade}\n" for query, document, grade in pairs)
    (folder / "qrels" / "test.tsv").write_text("query-id\tcorpus-id\tscore\n" + judged)
    return folder
