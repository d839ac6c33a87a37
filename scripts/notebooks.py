"""Run the notebooks of examples/ and write their outputs: `python scripts/notebooks.py [NAME ...]`.

A cell shows what it prints, then the value of its last line: as a picture if that is an image, else as text.
"""

from __future__ import annotations

import ast
import base64
import io
import json
import os
import sys
import tempfile
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any

EXAMPLES = Path(__file__).resolve().parents[1] / "examples"


def main(names: list[str]) -> None:
    for path in sorted(EXAMPLES.glob("*.ipynb")):
        if not names or path.stem in names:
            notebook = json.loads(path.read_text(encoding="utf-8"))
            run(notebook)
            path.write_text(json.dumps(notebook, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
            print(f"wrote {path.name}", flush=True)


def run(notebook: dict[str, Any]) -> dict[str, Any]:
    """Run the cells in order, in a folder of their own; write their outputs and return their variables."""
    session: dict[str, Any] = {"__name__": "__main__"}
    cells = [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]
    before = Path.cwd()
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        try:
            for number, cell in enumerate(cells, 1):
                cell["execution_count"] = number
                cell["outputs"] = outputs(number, "".join(cell["source"]), session)
        finally:
            os.chdir(before)
    return session


def outputs(number: int, code: str, session: dict[str, Any]) -> list[dict[str, Any]]:
    """Run one cell and return its outputs in the form of the notebook."""
    tree = ast.parse(code)
    last = tree.body.pop() if tree.body and isinstance(tree.body[-1], ast.Expr) else None
    written, value = io.StringIO(), None
    with redirect_stdout(written):
        exec(compile(tree, f"<cell {number}>", "exec"), session)  # noqa: S102
        if isinstance(last, ast.Expr):
            value = eval(compile(ast.Expression(last.value), f"<cell {number}>", "eval"), session)  # noqa: S307
    shown: list[dict[str, Any]] = []
    if written.getvalue():
        shown.append({"output_type": "stream", "name": "stdout", "text": written.getvalue().splitlines(keepends=True)})
    if value is not None:
        data = {"text/plain": repr(value).splitlines(keepends=True)}
        if hasattr(value, "_repr_png_"):
            data = {"image/png": base64.b64encode(value._repr_png_()).decode(), "text/plain": ["picture"]}
        shown.append({"output_type": "execute_result", "execution_count": number, "metadata": {}, "data": data})
    return shown


if __name__ == "__main__":
    main(sys.argv[1:])
