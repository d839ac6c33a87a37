"""Every block of code on every page runs, in the order of the page, in one folder and one session for each page.

Training is cut to a few steps on all pages but the README, `audit` answers its quickest question, and the reader's own
files are made from bundled data. What cannot run here (several machines, data that are not bundled) is read and checked
as far as that goes; `ONLY_CHECKED` names it.
"""

from __future__ import annotations

import inspect
import re
import subprocess
import sys

import pytest
import sklearn
import torch
import yaml

from rankwise.cli import main
from rankwise.problems import KINDS, BadRecipe, load_problem, make_problem
from rankwise.sklearn import APClassifier, NDCGRanker, PApRanker
from workers.pages import PAGES, ROOT, Block, blocks, commands, name_of, words
from workers.pyproject import PYPROJECT
from workers.readers_files import READERS_FILES
from workers.small_portfolio import shrink_ensembles

LANGUAGES = {"python", "sh", "yaml", "text"}
README = PAGES[0]
FEW_STEPS = "budget={steps: 8}"
ONLY_CHECKED = {
    "pip install .": "the project is installed already",
    "pip install '.[demo]'": "the project is installed already",
    "pip install '.[train,vision]'": "the project is installed already",
    "pip install 'rankwise[train,data,report,tune]'": "the project is installed already",
    "rankwise tune cells.csv --label cancer --trials 40": "takes long; tests/cli/test_tune.py runs fewer trials",
    "rankwise train runs/cells-tuned/best.yaml": "tests/cli/test_tune.py trains it",
    "rankwise tune cells.yaml --minutes 30 --space 'optimiser.learning_rate=log:1e-4:1e-1' --space "
    "'model.dropout=linear:0:0.5' --space 'batches.size=choice:[64, 256]' --space 'loss=choice:[soprc, cross-entropy]' "
    "--space 'model.hidden=fixed'": "takes long; tests/cli/test_tune.py runs fewer trials",
    "rankwise demo": "takes long; tests/cli/test_cli.py runs it with --quick",
    "rankwise simulate --csv simulation.csv": "takes long; tests/cli/test_audit.py runs it with --quick",
    "rankwise train ml-1m 'data={train: ml-100k, test: 0.2}' --out runs/ml-100k": "no such data here",
    "rankwise train ml-1m 'data={train: ml-20m, leave_one_out: time}' --out runs/ml-20m": "no such data here",
    "rankwise train ml-1m 'data={train: netflix, leave_one_out: time}' --out runs/netflix": "no such data here",
    "rankwise train eurlex-xml-cnn data.train=eurlex_raw_texts_train.txt data.test=eurlex_raw_texts_test.txt": "no "
    "such data here",
    "torchrun --nproc-per-node 2 examples/plain_torch.py checkpoint.pt 4": "tests/examples runs it",
    "torchrun --nproc-per-node 2 -m rankwise train cells.yaml": "tests/cli/test_train.py trains with two processes",
    "torchrun --nnodes 4 --nproc-per-node 8 --rdzv-backend c10d --rdzv-endpoint first-machine:29500 "
    "-m rankwise train cells.yaml device.accelerator=cuda": "four machines",
    "srun rankwise train cells.yaml device.accelerator=cuda --resume": "four machines",
}


@pytest.mark.filterwarnings("ignore::rankwise.data.DataNote")
@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_every_block_of_a_page_runs(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    if name_of(page) in READERS_FILES:
        READERS_FILES[name_of(page)](tmp_path)
    shrink_ensembles(monkeypatch)
    for estimator in (APClassifier, NDCGRanker, PApRanker):
        monkeypatch.setitem(inspect.unwrap(estimator.__init__).__kwdefaults__, "max_iter", 8)
    session: dict[str, object] = {"__name__": "__main__"}
    # A recipe may be shown after the command that uses it.
    for block in blocks(page):
        if block.title is not None:
            (tmp_path / block.title).write_text(block.text, encoding="utf-8")
    settings, threads = sklearn.get_config(), torch.get_num_threads()
    try:
        for block in blocks(page):
            if block.language == "python":
                exec(compile("\n" * (block.line - 1) + block.text, str(page), "exec"), session)
            elif block.language == "yaml":
                check_recipe(block)
            elif block.language == "sh":
                for command in commands(block):
                    if command not in ONLY_CHECKED:
                        run_command(command, cut=page != README)
    finally:
        sklearn.set_config(**settings)
        torch.set_default_dtype(torch.float32)
        torch.set_num_threads(threads)


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_every_block_says_its_language(page):
    assert {block.language for block in blocks(page)} <= LANGUAGES


def test_the_list_of_what_is_only_checked_holds_nothing_else():
    written = {
        command for page in PAGES for block in blocks(page) if block.language == "sh" for command in commands(block)
    }
    assert set(ONLY_CHECKED) <= written


@pytest.mark.parametrize("command", ONLY_CHECKED)
def test_what_is_only_checked_could_run(command, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "runs" / "cells-tuned").mkdir(parents=True)
    for recipe in ("cells.yaml", "runs/cells-tuned/best.yaml"):
        (tmp_path / recipe).write_text("{task: tabular, data: {train: cells.csv}}")
    if command.startswith("pip install"):
        asked = re.findall(r"[\w]+", command.partition("[")[2])
        assert set(asked) <= set(PYPROJECT["project"]["optional-dependencies"])
    elif "examples/" in command:
        assert (ROOT / next(word for word in words(command) if word.startswith("examples/"))).is_file()
    else:
        _, _, arguments = command.partition("rankwise ")
        parse_command([word for word in words(arguments) if word != "device.accelerator=cuda"])  # not on this machine


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_every_target_of_make_that_a_page_names_exists(page):
    named = set(re.findall(r"`make ([a-z-]+)", page.read_text(encoding="utf-8")))
    assert named <= set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))


@pytest.mark.parametrize("page", [page for page in PAGES if page.parent.name == "tutorials"], ids=name_of)
def test_a_tutorial_shows_what_each_command_prints(page):
    """`python scripts/tutorial_outputs.py` writes the output."""
    shown = blocks(page)
    pairs = [(block, after) for block, after in zip(shown, [*shown[1:], None], strict=True) if block.language == "sh"]
    assert pairs
    for block, after in pairs:
        assert after is not None, f"line {block.line}"
        assert after.language == "text", f"line {block.line}"
        for command in commands(block):
            if command.startswith("rankwise train"):
                assert "Test part" in after.text, f"line {block.line}"
                assert "Report: runs/" in after.text, f"line {block.line}"


def run_command(command: str, *, cut: bool) -> None:
    """Run a line of a shell block, with few training steps if `cut`; only a few programs are known."""
    program, *arguments = words(command)
    if program == "rankwise":
        if arguments[0] == "train":
            arguments += [FEW_STEPS] if cut else []
        elif arguments[0] == "audit":
            arguments += ["--quick", "--ask", "bounds"]  # tests/cli/test_audit.py asks all questions
        assert main(arguments) == 0, command
    elif program == "python":
        if arguments[0].endswith(".py"):
            arguments[0] = str(ROOT / arguments[0])
        subprocess.run([sys.executable, *arguments], check=True)
    elif program in ("echo", "head"):
        subprocess.run(["sh", "-c", command], check=True)
    else:
        raise AssertionError(f"{command}: neither run nor listed in ONLY_CHECKED")


def parse_command(arguments: list[str]) -> None:
    """Take a command of the program apart as the program does, without running it; a recipe is read."""
    import typer

    from rankwise.cli.app import app

    group = typer.main.get_command(app)
    name, *rest = arguments
    context = group.commands[name].make_context(name, rest)  # type: ignore[attr-defined]
    if name == "train":
        load_problem(context.params["what"], context.params["changes"] or [])


def check_recipe(block: Block) -> None:
    """A recipe must be one that could run; a part of a recipe must fit one of the tasks."""
    content = yaml.safe_load(block.text)
    if "task" in content:
        make_problem(content)
        return
    problems = []
    for task in KINDS:
        try:
            make_problem({"task": task, "data": {"train": "x"}, **content})
        except BadRecipe as problem:
            problems.append(f"{task}: {problem}")
    assert len(problems) < len(KINDS), problems


def test_the_first_snippet_of_the_readme_learns():
    snippet = next(block for block in blocks(README) if block.language == "python")
    session: dict[str, torch.Tensor] = {}
    exec(snippet.text, session)
    scores, labels = session["scores"], session["labels"]
    assert session["value"] > 0
    # The wrongly ordered pair, and only it, is pushed apart.
    assert torch.equal(scores.grad.nonzero().flatten(), torch.tensor([1, 2]))
    assert ((scores.grad < 0) == ((labels == 1) & (scores.grad != 0))).all()


def test_the_readme_names_every_loss_and_metric():
    from rankwise.losses import LOSSES
    from rankwise.metrics import METRICS

    text = README.read_text(encoding="utf-8")
    missing = [record.name for record in (*LOSSES, *METRICS) if f"`{record.name}" not in text]
    assert not missing


def test_the_readme_is_short_and_its_links_lead_somewhere():
    text = README.read_text(encoding="utf-8")
    assert len(text.splitlines()) <= 120
    links = re.findall(r"\]\((?!http)([^)#]+)", text)
    assert len(links) > 5
    assert not [link for link in links if not (ROOT / link).exists()]


def test_the_readme_counts_the_baselines():
    from rankwise.losses import LOSSES

    count = sum(record.role == "baseline" for record in LOSSES)
    assert f" {count} losses of other authors" in README.read_text(encoding="utf-8").replace("\n", " ")
