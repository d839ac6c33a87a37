"""What the program says to wrong input: every case is run for real, and the page docs/messages.md is written from it.

python scripts/bad_inputs.py docs/messages.md
"""

from __future__ import annotations

import contextlib
import gzip
import io
import os
import shlex
import sys
import tempfile
from pathlib import Path

from rankwise.cli import main

TABLE = "a,b,ill\n" + "".join(f"{i % 7},{i % 5},{int(i % 9 == 0)}\n" for i in range(120))
LETOR = "".join(f"{i % 3} qid:{i // 8} 1:{i % 5} 2:{i % 7}\n" for i in range(160))

# Files in the folder the commands run in.
FILES: dict[str, str | bytes] = {
    "rows.csv": TABLE,
    "rows.yaml": "task: tabular\ndata: {train: rows.csv}\nbudget: {steps: 2}\n",
    "lists.txt": LETOR,
    "lists.yaml": "task: ltr\ndata: {train: lists.txt}\nbudget: {steps: 2}\n",
    "words.csv": "a,b,ill\n1,2,0\n2,red,1\n3,4,0\n",
    "holes.csv": "a,b,ill\n1,2,0\n,3,1\n4,,0\n",
    "ragged.csv": "a,b,ill\n1,2,0\n1,2,3,4\n",
    "empty.csv": "",
    "one-class.csv": "a,b,ill\n" + "1,2,0\n3,4,0\n" * 20,
    "bad.txt": "1 qid:1 1:0.5\n1 qid:x 1:0.5\n",
    "cut.csv.gz": gzip.compress(TABLE.encode(), mtime=0)[:-20],
    "broken.yaml": "task: tabular\ndata: {train: rows.csv\n",
    "scores.csv": "score,label\n0.9,1\n0.2,0\n0.4,0\n",
    "short.csv": "score,label\n0.9,1\n0.2,0\n",
    "measured.csv": "a,b,size\n" + "".join(f"{i % 7},{i % 5},{i / 8 + 0.5}\n" for i in range(120)),
    "colours.csv": "a,b,colour\n"
    + "".join(f"{i % 7},{i % 5},{('red', 'red', 'blue', 'green')[i % 4]}\n" for i in range(120)),
    "commas.csv": "a;b;ill\n" + "".join(f"{i % 7},5;{i % 5};{int(i % 9 == 0)}\n" for i in range(120)),
    "header.csv": '"a","b\n(mm)",ill\n' + "1,2,0\n" * 40,
    "huge.csv": "a,b,ill\n" + "".join(f"{i % 7}e200,{i % 5},{int(i % 9 == 0)}\n" for i in range(120)),
    "users.csv": "user,item\n" + "".join(f"{i % 8},{i * 7 % 13}\n" for i in range(80)),
    "users.yaml": "task: recsys\ndata: {train: users.csv}\nbudget: {steps: 2}\n",
    "text.csv": "score,label\nhigh,1\nlow,0\n",
}

CASES = (
    "rankwise trian rows.yaml",
    "rankwise train",
    "rankwise train nothing.yaml",
    "rankwise train mamography",
    "rankwise train broken.yaml",
    "rankwise train rows.yaml nonsense",
    "rankwise train rows.yaml los.prior=1",
    "rankwise train rows.yaml task=tabul",
    "rankwise train rows.yaml loss=soprcc",
    "rankwise train rows.yaml loss.prior=2",
    "rankwise train rows.yaml loss.priorr=0.1",
    "rankwise train rows.yaml budget.steps=many",
    "rankwise train rows.yaml budget.steps=0",
    "rankwise train rows.yaml budget.epochs=3",
    "rankwise train rows.yaml learning_rate=0.1",
    "rankwise train rows.yaml lr=0.1",
    "rankwise train rows.yaml batch_size=64",
    "rankwise train rows.yaml epochs=5",
    "rankwise train users.yaml batch_size=64",
    "rankwise train users.yaml batches.batch_size=64",
    "rankwise train rows.yaml loss=AUPRC",
    "rankwise train rows.yaml metrics=[app]",
    "rankwise train rows.yaml device.precision=fp16",
    "rankwise train rows.yaml batches.positives=400",
    "rankwise train rows.yaml batches.size=100000",
    "rankwise train rows.yaml data.train=nothing.csv",
    "rankwise train rows.yaml data.train=words.csv",
    "rankwise train rows.yaml data.train=holes.csv data.missing=error",
    "rankwise train rows.yaml data.train=ragged.csv",
    "rankwise train rows.yaml data.train=empty.csv",
    "rankwise train rows.yaml data.train=one-class.csv",
    "rankwise train rows.yaml data.train=cut.csv.gz",
    "rankwise train rows.yaml data.train=measured.csv",
    "rankwise train rows.yaml data.train=colours.csv",
    "rankwise train rows.yaml data.train=commas.csv",
    "rankwise train rows.yaml data.train=header.csv",
    "rankwise train rows.yaml data.train=huge.csv",
    "rankwise train rows.yaml data.train=.",
    "rankwise train rows.yaml data.label=sick",
    "rankwise train rows.yaml data.positive=yes",
    "rankwise train rows.yaml data.validation=1.5",
    "rankwise train rows.yaml --out scores.csv/run",
    "rankwise train lists.yaml data.train=bad.txt",
    "rankwise train lists.yaml data.train=rows.csv",
    "rankwise train lists.yaml loss.name=cross-entropy",
    "rankwise check-data nothing.csv",
    "rankwise check-data words.csv --label colour",
    "rankwise evaluate nothing.csv",
    "rankwise evaluate scores.csv --metric ndgc@10",
    "rankwise evaluate scores.csv --metric ndcg@0",
    "rankwise evaluate scores.csv --score points",
    "rankwise evaluate text.csv",
    "rankwise evaluate .",
    "rankwise compare scores.csv",
    "rankwise compare scores.csv short.csv",
    "rankwise audit scores.csv --ask everything",
    "rankwise audit text.csv",
    "rankwise simulate --repeats 0",
    "rankwise list lossez",
    "rankwise demo --out no/such/folder/report.html",
)


def run_case(case: str) -> tuple[int, str, str]:
    """Exit code, stdout and stderr of a command."""
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = main(shlex.split(case)[1:])
    return code, out.getvalue(), err.getvalue()


def write_files(folder: Path) -> None:
    """The files that the commands name."""
    for name, content in FILES.items():
        (folder / name).write_bytes(content if isinstance(content, bytes) else content.encode())


def page() -> str:
    """The page of messages."""
    before = os.getcwd()
    lines = [
        "# What it says to wrong input",
        "",
        "Wrong input ends with exit code 2 and one line on stderr, never with a traceback (`--debug` shows it). This",
        "page is what the program printed: `python scripts/bad_inputs.py docs/messages.md`; that script has the files.",
        "",
        "```text",
    ]
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        try:
            write_files(Path(folder))
            for case in CASES:
                code, _, said = run_case(case)
                lines += [f"$ {case}    [{code}]", said.strip(), ""]
        finally:
            os.chdir(before)
    return "\n".join([*lines[:-1], "```", ""])


if __name__ == "__main__":
    Path(sys.argv[1]).write_text(page(), encoding="utf-8")
