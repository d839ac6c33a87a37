"""Draws `assets/detections.svg`: what a small detector finds in made-up scenes. Run: python docs/make_detections.py."""

from __future__ import annotations

import sys
from pathlib import Path

DOCS = Path(__file__).parent
sys.path[:0] = [str(DOCS.parent), str(DOCS.parent / "tests")]

from benchmarks.quality.bccd.frames import draw_frames  # noqa: E402
from rankwise.tasks import DetectionTask, DetectorModel  # noqa: E402
from rankwise.training import adamw, cosine, fit  # noqa: E402
from workers.boxed_pictures import make_split  # noqa: E402


def main() -> None:
    task = DetectionTask(
        make_split(96), "stable-ap", {"rho": 0.1, "tau": 1.0}, lists="all", model=DetectorModel(channels=16, scale=2)
    )
    model = fit(task, steps=250, optimiser=adamw(1e-2), schedule=cosine).model
    print({name: round(value, 3) for name, value in task.evaluate(model, "test").items()})
    most = max(range(20), key=lambda place: len(task.data.test.truth(place).labels))
    (drawing,) = task.draw(model, "test", [most])
    (DOCS / "assets" / "detections.svg").write_text(draw_frames(drawing))


if __name__ == "__main__":
    main()
