"""Write an example for `rankwise audit`: scores of a logistic regression that looks for eights among digits.

`python docs/make_scores.py eights.csv`
"""

from __future__ import annotations

import sys
from pathlib import Path

import polars
from sklearn.linear_model import LogisticRegression

from rankwise.data import load_eights


def main(path: Path) -> None:
    split = load_eights(seed=0)
    train, test = split.train, split.test
    # Pixels that are the same in all images teach nothing.
    used = train.features.std(0) > 0.2
    model = LogisticRegression(C=0.1).fit(train.features[:, used].numpy(), train.labels.numpy())
    features = test.features[:, used].numpy()
    columns = {"score": model.decision_function(features), "label": test.labels.numpy()}
    pixels = {f"pixel_{number}": features[:, number] for number in range(features.shape[1])}
    polars.DataFrame(columns | pixels).write_csv(path)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
