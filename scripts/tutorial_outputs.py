"""Run the tutorials and write what their blocks print, and pictures of their reports, into the pages.

`python scripts/tutorial_outputs.py [PAGE ...]` runs the pages of docs/tutorials, all or the named ones, as a reader
would: every block in order, in one folder for each page. What a block prints becomes the `text` block after it. A page
that shows `assets/run-NAME.webp` gets a picture of the first screen of runs/NAME/report.html.
"""

from __future__ import annotations

import io
import os
import re
import shlex
import subprocess
import sys
import tempfile
from contextlib import chdir, redirect_stdout
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
TUTORIALS = ROOT / "docs" / "tutorials"
ASSETS = ROOT / "docs" / "assets"
WIDTH = "88"
# A block of code, and the block of its output if there is one.
BLOCK = re.compile(
    r"^```(?P<language>python|sh|yaml)(?P<rest>[^\n]*)\n(?P<code>.*?)^```\n(?:\n```text\n.*?^```\n)?", re.S | re.M
)
PICTURE = re.compile(r"assets/run-([\w-]+)\.webp")


def main(names: list[str]) -> None:
    os.environ["COLUMNS"] = WIDTH
    for page in sorted(TUTORIALS.glob("*.md")):
        if not names or page.stem in names:
            page.write_text(renewed(page.read_text(encoding="utf-8")), encoding="utf-8")
            print(f"wrote {page.relative_to(ROOT)}", flush=True)


def renewed(text: str) -> str:
    """Return the text of a page with the output of every block as it is now; write the pictures it shows."""
    session: dict[str, object] = {"__name__": "__main__"}
    with tempfile.TemporaryDirectory() as folder, chdir(folder):
        text = BLOCK.sub(lambda block: with_output(block, session), text)
        for name in PICTURE.findall(text):
            draw(Path(folder) / "runs" / name / "report.html", ASSETS / f"run-{name}.webp")
    return text


def with_output(block: re.Match[str], session: dict[str, object]) -> str:
    code = block["code"]
    written = io.StringIO()
    with redirect_stdout(written):
        if block["language"] == "python":
            exec(compile(code, "<tutorial>", "exec"), session)  # noqa: S102
        elif block["language"] == "sh":
            for command in code.replace("\\\n", " ").splitlines():
                run(command)
        else:
            name = re.search(r'title="([^"]+)"', block["rest"])
            assert name is not None, "a recipe of a tutorial has the name of its file as title"
            Path(name[1]).write_text(code, encoding="utf-8")
    output = "\n".join(line.rstrip() for line in written.getvalue().strip().splitlines())
    fence = f"```{block['language']}{block['rest']}\n{code}```\n"
    return f"{fence}\n```text\n{output}\n```\n" if output else fence


def run(command: str) -> None:
    from rankwise.cli import main as program

    name, *arguments = shlex.split(command, comments=True)
    if name == "rankwise":
        assert program(arguments) == 0, command
    else:
        print(subprocess.run([name, *arguments], check=True, capture_output=True, text=True).stdout)


def draw(report: Path, out: Path) -> None:
    """Write a picture of the first screen of a report."""
    from PIL import Image

    sys.path.append(str(ROOT / "tests"))
    from workers.browser import Browser

    browser = Browser()
    try:
        browser.open(report, width=1000, height=760)
        browser.problems()  # waits until the page is drawn
        Image.open(io.BytesIO(browser.picture(whole=False))).save(out, quality=82)
    finally:
        browser.close()


if __name__ == "__main__":
    main(sys.argv[1:])
