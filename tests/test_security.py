"""Files of strangers run no code, and nothing is written where nobody asked for it."""

from __future__ import annotations

import ast
import os
import pickle
import shutil
import zipfile
from pathlib import Path

import numpy as np
import pytest
import torch

import rankwise
from rankwise.cli import main
from rankwise.data import read_arff, read_images, read_scores, read_table
from rankwise.data.cache import Cache
from rankwise.problems import BadRecipe, load_problem
from rankwise.training import Checkpoints, read_checkpoint
from workers.rows import write_all

SOURCE = sorted(Path(rankwise.__file__).parent.rglob("*.py"))
# Module and name of what would run, or could be made to run, what a file says.
FORBIDDEN_MODULES = {"pickle", "cPickle", "dill", "cloudpickle", "joblib", "marshal", "shelve", "subprocess"}
FORBIDDEN_CALLS = {("", "eval"), ("", "exec"), ("", "compile"), ("", "__import__"), ("os", "system"), ("os", "popen")}


class Trap:
    """Pickled, it makes a file when it is loaded."""

    def __init__(self, sprung: Path) -> None:
        self.sprung = sprung

    def __reduce__(self):
        return os.mkdir, (str(self.sprung),)


def calls(tree: ast.AST):
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            of, _, name = ast.unparse(node.func).rpartition(".")
            yield of, name, {keyword.arg: keyword.value for keyword in node.keywords}


def imported(tree: ast.AST):
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name.split(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            yield node.module.split(".")[0]


@pytest.mark.parametrize("path", SOURCE, ids=lambda path: str(path.relative_to(SOURCE[0].parents[0])))
def test_source_has_nothing_that_runs_what_a_file_says(path):
    tree = ast.parse(path.read_text(encoding="utf-8"))
    assert not FORBIDDEN_MODULES & set(imported(tree))
    for of, name, options in calls(tree):
        assert (of, name) not in FORBIDDEN_CALLS
        if name == "load" and of in ("torch", "np"):
            option, wanted = ("weights_only", True) if of == "torch" else ("allow_pickle", False)
            assert option in options, f"{of}.load without {option}"
            assert ast.literal_eval(options[option]) is wanted
        if of == "yaml":
            assert name in ("safe_load", "safe_dump"), name


def test_no_check_of_input_is_an_assert():
    """An assert disappears under `python -O`; each that is left states a type, or stands in `rankwise.testing`."""
    for path in SOURCE:
        if "testing" in path.parts:
            continue
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Assert):
                said = ast.unparse(node.test)
                assert "is not None" in said or "isinstance" in said, f"{path.name}: assert {said}"


@pytest.fixture
def sprung(tmp_path):
    return tmp_path / "sprung"


def test_a_pickle_in_a_checkpoint_is_refused_and_not_run(tmp_path, sprung):
    path = tmp_path / "step-00000001.pt"
    torch.save({"model": Trap(sprung)}, path)
    with pytest.raises(ValueError, match="holds something other than tensors and plain values; refused"):
        read_checkpoint(path)
    path.write_bytes(pickle.dumps(Trap(sprung)))
    with pytest.raises(ValueError, match="not a complete checkpoint"):
        read_checkpoint(path)
    assert not sprung.exists()


def test_a_pickle_among_the_checkpoints_of_a_run_is_passed_over(tmp_path, sprung):
    store = Checkpoints(tmp_path)
    store.save({"step": 1}, 1)
    torch.save({"model": Trap(sprung)}, tmp_path / "step-00000002.pt")
    state, damaged = store.newest()
    assert state == {"step": 1}
    assert "refused" in damaged[0].reason
    assert not sprung.exists()


@pytest.mark.parametrize("read", [read_table, read_scores, read_images])
def test_a_pickle_in_an_npz_file_is_refused_and_not_run(tmp_path, sprung, read):
    path = tmp_path / "trap.npz"
    np.savez(path, X=np.array([[Trap(sprung)]], dtype=object), y=np.ones(1))
    with pytest.raises(ValueError, match=r"trap\.npz: expected a whole npz file of arrays of numbers or text"):
        read(path)
    shutil.copy(path, tmp_path / "plain.npz")
    (tmp_path / "plain.npz").write_bytes(pickle.dumps(Trap(sprung)))
    with pytest.raises(ValueError, match=r"plain\.npz: expected a whole npz file"):
        read(tmp_path / "plain.npz")
    assert not sprung.exists()


def test_a_pickle_in_the_place_of_a_cache_is_not_run(tmp_path, sprung):
    original = tmp_path / "train.txt"
    original.write_text("1 1:1\n")
    cache = Cache(original, tmp_path / "cache", "")
    cache.path.parent.mkdir()
    np.savez(cache.path, state=np.array([Trap(sprung)], dtype=object))
    assert cache.load() is None
    assert not sprung.exists()


@pytest.mark.parametrize(
    "text",
    [
        "task: !!python/object/apply:os.mkdir [{sprung}]",
        "!!python/object/new:os.mkdir [{sprung}]",
        "task: tabular\ndata: !!python/name:os.system",
    ],
)
def test_a_recipe_that_asks_for_python_objects_is_refused(tmp_path, sprung, text):
    path = tmp_path / "trap.yaml"
    path.write_text(text.format(sprung=sprung))
    with pytest.raises(BadRecipe, match=r"trap\.yaml, line \d, column \d+: could not determine a constructor"):
        load_problem(path)
    assert not sprung.exists()


@pytest.mark.parametrize(
    "text, message",
    [
        ("a: &a [*a, *a]", "at most 10,000 values, nested at most 50 deep"),
        ("a: &a {b: *a}", "at most 10,000 values, nested at most 50 deep"),
        ("a0: &a0 [x, x]\n" + "".join(f"a{i}: &a{i} [*a{i - 1}, *a{i - 1}]\n" for i in range(1, 40)), "at most 10,000"),
        ("a: " + "[" * 5000, "nested at most 50 deep"),
        ("task: [tabular]", r"unknown task \['tabular'\]"),
        ("task: 2001-99-99", "month must be in 1..12"),
        ("x" * (2 << 20), "at most 1 MiB"),
    ],
    ids=["endless list", "endless keys", "billion laughs", "deep", "list", "date", "long"],
)
def test_a_recipe_made_to_fill_the_memory_is_refused(tmp_path, text, message):
    path = tmp_path / "large.yaml"
    path.write_text(text)
    with pytest.raises(BadRecipe, match=message):
        load_problem(path)


def test_entities_in_xml_are_refused(tmp_path):
    (tmp_path / "songs.arff").write_text("@relation r\n@attribute a numeric\n@attribute b {0,1}\n@data\n1,0\n")
    (tmp_path / "songs.xml").write_text(
        '<!DOCTYPE x [<!ENTITY a SYSTEM "file:///etc/passwd">]><labels><label name="&a;"/></labels>'
    )
    with pytest.raises(ValueError, match=r"songs\.xml: expected an XML file of labels without declarations"):
        read_arff(tmp_path / "songs.arff")


def test_a_checkpoint_with_compressed_parts_is_refused(tmp_path):
    path = tmp_path / "step-00000001.pt"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("archive/data.pkl", bytes(10 << 20))
    with pytest.raises(ValueError, match="expected parts that are not compressed"):
        read_checkpoint(path)


def everything_below(folder):
    return {path for path in folder.rglob("*") if "pycache" not in str(path)}


def test_a_run_writes_below_its_own_folder_only(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write_all(tmp_path)
    before = everything_below(tmp_path)
    assert main(["train", "rows.yaml", "budget.steps=3", "--out", "out/run"]) == 0
    new = everything_below(tmp_path) - before
    assert all(path.is_relative_to(tmp_path / "out") for path in new), new


@pytest.mark.parametrize("path", ["../../../etc/passwd", "/dev/zero", "/proc/self/mem"])
def test_strange_paths_to_read_from_end_in_one_line(tmp_path, monkeypatch, capsys, path):
    monkeypatch.chdir(tmp_path)
    write_all(tmp_path)
    assert main(["train", "rows.yaml", f"data.train={path}", "--out", "run"]) in (1, 2)
    err = capsys.readouterr().err
    assert err.startswith("rankwise: ")
    assert len(err.splitlines()) == 1


def test_the_cache_of_a_recipe_makes_only_npz_files_named_after_the_data(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write_all(tmp_path)
    before = everything_below(tmp_path)
    command = ["train", "queries.yaml", "budget.steps=12", "data.cache=kept", "--out", "run"]
    assert main(command) == 0
    assert main([*command, "--resume"]) == 0  # a cache is not part of the data
    new = [path for path in everything_below(tmp_path) - before if path.is_file()]
    beside = [path for path in new if not path.is_relative_to(tmp_path / "run")]
    assert beside
    for path in beside:
        assert path.parent == tmp_path / "kept"
        assert path.name.startswith("queries.txt.")
        assert path.suffix == ".npz"
