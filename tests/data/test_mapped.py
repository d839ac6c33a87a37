"""Features in mapped files: the same rows as in memory, and training from them gives the same bits."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from rankwise.data import Part, files, letor, memory, read_letor
from rankwise.data.cache import Cache
from rankwise.data.mapped import MappedFeatures, join_features
from rankwise.data.schema import DataNote
from rankwise.models import rows as model_rows
from rankwise.models.rows import Scaling
from rankwise.problems import SearchRanking
from rankwise.problems.batches import predict_all
from rankwise.runs import train


def matrices():
    random = torch.Generator().manual_seed(0)
    return torch.rand(7, 3, generator=random), torch.rand(5, 3, generator=random)


def test_rows_of_mapped_files_are_those_in_memory():
    first, second = matrices()
    mapped = MappedFeatures([first]).take(torch.tensor([6, 1, 3])).join(MappedFeatures([second]))
    dense = torch.cat([first[[6, 1, 3]], second])
    assert (len(mapped), mapped.shape, mapped.dtype) == (8, dense.shape, dense.dtype)
    chosen = torch.tensor([7, 0, 2, 2])
    assert torch.equal(mapped[:], dense)
    assert torch.equal(mapped[chosen], dense[chosen])
    assert torch.equal(mapped[2:6], dense[2:6])
    assert torch.equal(mapped.read(chosen, slice(1, 3)), dense[chosen, 1:3])
    assert torch.equal(mapped.take(chosen)[:], dense[chosen])
    assert torch.equal(torch.cat(list(mapped.split(3))), dense)
    assert torch.equal(join_features(mapped, first)[:], torch.cat([dense, first]))


def test_parts_of_one_file_are_joined_without_a_second_file():
    mapped = MappedFeatures([matrices()[0]])
    parts = [Part(mapped.take(rows), torch.zeros(len(rows))) for rows in torch.arange(7).split([5, 2])]
    joined = parts[0].join(parts[1]).features
    assert len(joined._files) == 1
    assert torch.equal(joined[:], mapped[:])


@pytest.mark.parametrize("kind, fill", [("standard", False), ("log", True), ("none", True)])
def test_scaling_by_blocks_of_columns_is_scaling_at_once(monkeypatch, kind, fill):
    features = torch.randn(500, 7, generator=torch.Generator().manual_seed(0)) * 10
    if fill:
        features[::5, 2] = torch.nan
    at_once = Scaling(7, kind, fill_missing=fill).fit(features).state_dict()
    monkeypatch.setattr(model_rows, "_CELLS", 1000)
    by_blocks = [
        Scaling(7, kind, fill_missing=fill).fit(x).state_dict() for x in (features, MappedFeatures([features]))
    ]
    for name, values in at_once.items():
        torch.testing.assert_close(by_blocks[0][name], values, rtol=1e-6, atol=0)
        assert torch.equal(by_blocks[0][name], by_blocks[1][name])


def test_predictions_from_mapped_files_are_those_from_memory():
    first, _ = matrices()
    model = torch.nn.Linear(3, 1)
    assert torch.equal(predict_all(model, MappedFeatures([first])), predict_all(model, first))
    assert predict_all(model, first[:0]).shape == (0, 1)


def write_letor(path, wider_at=None):
    random = np.random.default_rng(0)
    lines = []
    for row in range(600):
        values = random.normal(size=5 if wider_at is None or row < wider_at else 7)
        cells = " ".join(f"{index}:{value:.3f}" for index, value in enumerate(values, 1))
        lines.append(f"{random.integers(0, 4)} qid:{row // 10} {cells}")
    path.write_text("\n".join(lines) + "\n")
    return path


@pytest.mark.parametrize("wider_at", [None, 300])
def test_a_file_is_parsed_to_disk_as_it_is_to_memory(tmp_path, monkeypatch, wider_at):
    monkeypatch.setattr(letor, "CHUNK_BYTES", 1000)
    path = write_letor(tmp_path / "train.txt", wider_at)
    plain = read_letor(path, block_bytes=3000)
    for _ in range(2):  # written, then read again
        mapped = read_letor(path, cache=tmp_path / "cache", block_bytes=3000)
        assert torch.equal(mapped.features, plain.features)
        assert mapped.features.data_ptr() % 16 == 0
        assert torch.equal(mapped.labels, plain.labels)
        assert torch.equal(mapped.query_ids, plain.query_ids)
    assert [path.suffix for path in (tmp_path / "cache").iterdir()] == [".npz"]


def test_writing_to_a_mapped_array_does_not_change_the_file(tmp_path):
    original = tmp_path / "x"
    original.write_text("x")
    cache = Cache(original, tmp_path, "")
    cache.save({"numbers": np.arange(5.0), "none": np.zeros((0, 3)), "one": np.array(7)})
    arrays = cache.load()
    arrays["numbers"][:] = 0
    again = cache.load()
    assert again["numbers"].tolist() == [0, 1, 2, 3, 4]
    assert (again["none"].shape, int(again["one"])) == ((0, 3), 7)


@pytest.mark.parametrize("options", [{}, {"refit": True}, {"model": {"name": "context-aware"}}])
def test_training_from_mapped_files_gives_the_same_bits(tmp_path, options):
    path = write_letor(tmp_path / "train.txt")
    short = {"budget": {"steps": 6}, "evaluation": {"every": 3}, "batches": {"queries": 8}, **options}
    in_memory, mapped = (
        train(SearchRanking(data={"train": str(path), **data}, **short))
        for data in ({}, {"cache": str(tmp_path / "cache")})
    )
    assert isinstance(mapped.part("train").features, MappedFeatures)
    weights = mapped.model.state_dict()
    assert all(torch.equal(weights[name], value) for name, value in in_memory.model.state_dict().items())
    assert mapped.test.means == in_memory.test.means


def test_a_file_that_cannot_fit_is_refused_before_it_is_read(tmp_path, monkeypatch):
    path = write_letor(tmp_path / "train.txt")
    monkeypatch.setattr(letor, "FREE_BYTES", 0)
    monkeypatch.setattr(memory, "free_memory", lambda: 50_000)
    with pytest.raises(
        ValueError, match=r"train.txt: expected data that fit into memory, got about 0\.0 GiB with .*cache"
    ):
        read_letor(path)
    assert read_letor(path, cache=tmp_path / "cache").features.shape == (600, 5)
    monkeypatch.setattr(memory, "free_memory", lambda: 100_000)
    with pytest.warns(DataNote, match=r"train.txt: will take about 0\.0 GiB of the 0\.0 GiB of memory .*cache"):
        assert read_letor(path).features.shape == (600, 5)
    monkeypatch.setattr(memory, "free_memory", lambda: 1_000_000)
    assert read_letor(path).features.shape == (600, 5)


def test_free_memory_is_the_least_of_system_and_control_group(tmp_path):
    (tmp_path / "meminfo").write_text("MemTotal: 9 kB\nMemAvailable:   300 kB\n")
    assert memory.free_memory(tmp_path, tmp_path) == 300 * 1024
    (tmp_path / "memory.max").write_text("200000\n")
    (tmp_path / "memory.current").write_text("150000\n")
    assert memory.free_memory(tmp_path, tmp_path) == 50_000
    (tmp_path / "memory.max").write_text("max\n")
    assert memory.free_memory(tmp_path, tmp_path) == 300 * 1024
    assert memory.free_memory(tmp_path / "no", tmp_path / "no") is None


def test_reading_is_reported_while_it_goes_on(tmp_path):
    path = write_letor(tmp_path / "train.txt")
    told = []
    with files.report_reading(lambda *what: told.append(what)):
        read_letor(path, block_bytes=3000)
    read_letor(path)
    assert {name for name, _ in told} == {path}
    shares = [share for _, share in told]
    assert len(shares) > 5
    assert shares == sorted(shares)
    assert shares[-1] == 1
