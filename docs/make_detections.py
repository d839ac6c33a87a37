"""Draws `assets/detections.svg`: what a small detector finds in made-up scenes. Run: python docs/make_detections.py."""

from __future__ import annotations

import sys
from pathlib import Path

DOCS = Path(__file__).parent
sys.path[:0] = [str(DOCS.parent), str(DOCS.parent / "tests")]

from benchmarks.quality.bccd.frames import draw_frames  # noqa: E402
from rankwise.data import DetectionSchema  # noqa: E402
from rankwise.problems import Detection  # noqa: E402
from rankwise.problems.detection.boxes import draw_boxes, true_boxes  # noqa: E402
from rankwise.training import fit  # noqa: E402
from workers.boxed_pictures import make_split  # noqa: E402


def main() -> None:
    split = make_split(96)
    test = split.part("test")
    problem = Detection(
        loss={"name": "stable-ap", "rho": 0.1, "tau": 1.0},
        lists="all",
        model={"channels": 16, "scale": 2},
        augmentation="none",
        optimiser={"learning_rate": 1e-2},
        budget={"steps": 250},
        evaluation={"every": None, "weights": "last"},
    )
    model = fit(problem, DetectionSchema.of(split.train), split).model
    print({name: round(value, 3) for name, value in problem.evaluate(model, test).means.items()})
    most = max(range(20), key=lambda index: len(test.truth(index).labels))
    thresholds = problem.calibrate(model, split.part("validation"))["thresholds"]
    (drawing,) = draw_boxes(test, problem.predict(model, test), true_boxes(test), thresholds, [most])
    (DOCS / "assets" / "detections.svg").write_text(draw_frames(drawing))


if __name__ == "__main__":
    main()
