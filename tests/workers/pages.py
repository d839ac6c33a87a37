"""The pages of the documentation as things to run: their blocks of code, and what a command of theirs means."""

from __future__ import annotations

import re
import shlex
import textwrap
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
FENCE = re.compile(
    r"^(?P<indent> *)```(?P<language>\w*)(?P<rest>[^\n]*)\n(?P<text>.*?)^(?P=indent)```$", re.DOTALL | re.MULTILINE
)
TITLE = re.compile(r'title="([^"]+)"')


@dataclass(frozen=True)
class Block:
    """A fenced block: its language, the name of the file it stands for if it has a title, and where it begins."""

    language: str
    title: str | None
    text: str
    line: int


def name_of(page: Path) -> str:
    return page.relative_to(ROOT).as_posix()


def blocks(page: Path) -> list[Block]:
    text = page.read_text(encoding="utf-8")
    found = []
    for match in FENCE.finditer(text):
        title = TITLE.search(match["rest"])
        line = text[: match.start()].count("\n") + 2
        found.append(Block(match["language"], title and title[1], textwrap.dedent(match["text"]), line))
    return found


def commands(block: Block) -> list[str]:
    """The commands of a shell block: one a line, comments and line breaks taken away."""
    lines = block.text.replace("\\\n", " ").splitlines()
    return [" ".join(_without_comment(line).split()) for line in lines if _without_comment(line).strip()]


def words(command: str) -> list[str]:
    return shlex.split(command)


def _without_comment(line: str) -> str:
    # A comment begins with a hash at the start or after a blank.
    return re.sub(r"(^|\s)#.*", "", line)
