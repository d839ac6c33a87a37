"""A report leads from a mistake to the user's own row, and says what a random order would reach."""

from __future__ import annotations

import csv
import re

import pytest
import torch

from rankwise.cli import main
from rankwise.data import Part


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    lines = ["patient,a,b,ill"]
    random = torch.Generator().manual_seed(0)
    for number in range(300):
        a, b = torch.randn(2, generator=random).tolist()
        lines.append(f"P{number + 1:04d},{a:.4f},{b:.4f},{int(a + b > 1)}")
    (tmp_path / "cells.csv").write_text("\n".join(lines) + "\n")
    (tmp_path / "cells.yaml").write_text(
        "task: tabular\ndata: {train: cells.csv, drop: [patient]}\nbudget: {steps: 10}\nevaluation: {every: 10}\n"
    )
    return tmp_path


def rows_of(path):
    with open(path, newline="") as file:
        return list(csv.DictReader(file))


def test_scores_carry_the_row_and_the_id_of_the_source(folder, capsys):
    assert main(["train", "cells.yaml"]) == 0
    source = rows_of(folder / "cells.csv")
    assert main(["evaluate", "runs/cells", "--data", "cells.csv", "--scores-out", "all.csv"]) == 0
    for name, count in (("runs/cells/test-scores.csv", 60), ("all.csv", 300)):
        found = rows_of(folder / name)
        assert len(found) == count
        for row in found:
            own = source[int(row["row"]) - 1]
            assert (row["id"], row["label"]) == (own["patient"], own["ill"])
    assert len({row["row"] for row in rows_of(folder / "runs/cells/test-scores.csv")}) == 60


def test_the_report_names_mistakes_by_row_and_id(folder):
    assert main(["train", "cells.yaml"]) == 0
    page = (folder / "runs" / "cells" / "report.html").read_text()
    named = re.findall(r"row (\d+) \((P\d+)\)", page)
    assert named
    assert all(f"P{int(number):04d}" == name for number, name in named)
    in_test = {row["row"] for row in rows_of(folder / "runs/cells/test-scores.csv")}
    assert {number for number, _ in named} <= in_test


def test_the_report_shows_what_a_random_order_reaches(folder):
    assert main(["train", "cells.yaml", "metrics=[ap, auroc]"]) == 0
    page = (folder / "runs" / "cells" / "report.html").read_text()
    assert "random order" in page
    labels = [int(row["label"]) for row in rows_of(folder / "runs/cells/test-scores.csv")]
    shown = dict(re.findall(r"<th[^>]*>(ap|auroc)</th>(?:\s*<td[^>]*>[^<]*</td>){2}\s*<td[^>]*>([.\d]+)</td>", page))
    # The mean over some random orders lies near the expectation: a bit above the share of positives, and 1/2.
    assert float(shown["ap"]) == pytest.approx(sum(labels) / len(labels), abs=0.1)
    assert float(shown["auroc"]) == pytest.approx(0.5, abs=0.06)


def test_rows_stay_with_their_numbers_through_every_cut():
    part = Part(torch.rand(6, 2), torch.zeros(6), row_ids=tuple("abcdef"))
    once = part.take(torch.tensor([4, 1, 3]))
    again = once.take(torch.tensor([2, 0]))
    assert again.rows.tolist() == [4, 5]
    assert again.row_ids == ("d", "e")
    assert [again.row_name(index) for index in range(2)] == ["row 4 (d)", "row 5 (e)"]
    assert Part(torch.rand(2, 2), None).row_name(1) == "row 2"
