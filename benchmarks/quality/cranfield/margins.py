"""`python -m benchmarks.quality.cranfield.margins [--out FILE]`: margin and discount shift of NDCG on cosines.

Static embeddings, a head and moved documents as in the default of text search, NDCG loss alone, without BM25. NDCG@10
of the validation queries of the five folds (36 each, seed 0): the test queries of a fold are not looked at.
"""

from __future__ import annotations

import argparse
from itertools import product
from pathlib import Path

import torch

from benchmarks.quality.cranfield.data import folds, load
from rankwise.data import Split, cut_queries, learn_texts
from rankwise.problems import LossChoice, TextSearch
from rankwise.training import fit

MARGINS = (0.1, 1.0)
SHIFTS = (0.0, 30.0)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=Path(__file__).with_name("margins.md"))
    options = parser.parse_args()
    torch.set_num_threads(1)
    texts = load()
    default = TextSearch(evaluation={"every": None, "weights": "last"}, second_loss=None)
    schema = learn_texts(texts.corpus, encoder=None, dimensions=default.model.dimensions, k1=1.5, b=0.75)
    whole = schema.read(texts)
    means = {}
    for margin, shift in product(MARGINS, SHIFTS):
        loss = LossChoice.of("ndcg", margin=margin * default.model.scale, discount_shift=shift, gain="linear")
        values = []
        for queries in folds(len(whole)):
            rest = torch.tensor(sorted(set(range(len(whole))) - set(queries)))
            train, validation = cut_queries(whole.take(rest), shares=(0.8, 0.2), seed=0)
            problem = default.changed(loss=loss)
            model = fit(problem, schema, Split(train, validation), seed=0).model
            values.append(problem.evaluate(model, validation).means["ndcg@10"])
        means[margin, shift] = sum(values) / len(values)
        print(f"margin {margin:g}, shift {shift:g}: {means[margin, shift]:.4f}", flush=True)
    lines = ["| margin of the cosine | " + " | ".join(f"shift {shift:g}" for shift in SHIFTS) + " |"]
    lines.append("|---|" + "--:|" * len(SHIFTS))
    for margin in MARGINS:
        lines.append(f"| {margin:g} | " + " | ".join(f"{means[margin, shift]:.4f}" for shift in SHIFTS) + " |")
    options.out.write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
