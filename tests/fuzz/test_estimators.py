"""Tables under any order of updates, growth, saving, loading, moving and eval mode do what plain dictionaries do."""

from __future__ import annotations

import copy
import io
import warnings

import pytest
import torch
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule, run_state_machine_as_test

from fuzz.cases import FEW, LARGEST, MANY, SMALLEST
from rankwise.estimators import IdTable, MeanTracker, PairAverages, QuantileTracker, RecentRows, ThresholdTracker

# Few enough to meet again, with those at which int64 ends; and many, so that the table grows.
IDS = st.one_of(
    st.integers(-3, 3), st.sampled_from([SMALLEST, SMALLEST + 1, LARGEST - 1, LARGEST]), st.integers(0, 300)
)
VALUES = st.floats(-100, 100, width=32)
RATES = st.sampled_from([0.001, 0.1, 0.5, 1.0])


class Table(RuleBasedStateMachine):
    """An `IdTable` beside a dictionary in plain Python numbers."""

    columns = 1

    def __init__(self) -> None:
        super().__init__()
        self.table = IdTable(width=2, columns=self.columns)
        self.expected: dict[tuple[int, ...], list[float]] = {}

    @property
    def ids(self) -> st.SearchStrategy[tuple[int, ...]]:
        return st.tuples(*[IDS] * self.columns)

    def as_tensor(self, ids: list[tuple[int, ...]]) -> torch.Tensor:
        tensor = torch.tensor(ids, dtype=torch.int64).reshape(len(ids), self.columns)
        return tensor[:, 0] if self.columns == 1 else tensor

    @rule(data=st.data(), rate=RATES)
    def update(self, data: st.DataObject, rate: float) -> None:
        batch = data.draw(st.lists(st.tuples(self.ids, st.tuples(VALUES, VALUES)), max_size=12))
        ids = [each for each, _ in batch]
        values = torch.tensor([value for _, value in batch]).reshape(len(batch), 2)
        given = self.table.update(self.as_tensor(ids), values, rate)
        for each in set(ids):
            own = [value for other, value in batch if other == each]
            mean = [sum(column) / len(own) for column in zip(*own, strict=True)]
            old = self.expected.get(each)
            self.expected[each] = (
                mean if old is None else [(1 - rate) * a + rate * b for a, b in zip(old, mean, strict=True)]
            )
        self.compare(ids, given)

    @rule(data=st.data())
    def read(self, data: st.DataObject) -> None:
        ids = data.draw(st.lists(self.ids, max_size=12))
        rows, known = self.table.read(self.as_tensor(ids))
        assert known.tolist() == [each in self.expected for each in ids]
        self.compare(ids, rows)

    @rule(rows=st.integers(0, 200))
    def save_and_load_into_another(self, rows: int) -> None:
        """Through a file, into a table that has seen something else."""
        file = io.BytesIO()
        torch.save(self.table.state_dict(), file)
        file.seek(0)
        other = IdTable(width=2, columns=self.columns)
        other.update(self.as_tensor([(number,) * self.columns for number in range(rows)]), torch.ones(rows, 2), 1.0)
        other.load_state_dict(torch.load(file, weights_only=True))
        assert torch.equal(other.ids, self.table.ids)
        assert torch.equal(other.rows, self.table.rows.to(other.rows.dtype))
        self.table = other

    @rule()
    def copy(self) -> None:
        self.table = copy.deepcopy(self.table)

    @rule(dtype=st.sampled_from([torch.float16, torch.bfloat16, torch.float32, torch.float64]))
    def to(self, dtype: torch.dtype) -> None:
        self.table.to(dtype)
        assert self.table.rows.dtype in (torch.float32, torch.float64)
        assert self.table.ids.dtype == torch.int64

    @invariant()
    def holds_what_it_was_given(self) -> None:
        ids = self.table.ids.reshape(len(self.table), self.columns).tolist()
        assert len(ids) == len(self.expected)
        assert {tuple(each) for each in ids} == self.expected.keys()
        self.compare([tuple(each) for each in ids], self.table.rows)

    def compare(self, ids: list[tuple[int, ...]], rows: torch.Tensor) -> None:
        expected = torch.tensor([self.expected.get(each, [0.0, 0.0]) for each in ids]).reshape(len(ids), 2)
        assert torch.allclose(rows.float(), expected, rtol=1e-5, atol=1e-4)


class PairTable(Table):
    columns = 2


def groups(count: int) -> st.SearchStrategy[list[int]]:
    return st.lists(IDS, min_size=count, max_size=count)


class Trackers(RuleBasedStateMachine):
    """Every estimator in training and eval mode, saved and loaded at any time, beside one that is left alone."""

    @initialize()
    def build(self) -> None:
        self.left, self.right = self.fresh(), self.fresh()

    @staticmethod
    def fresh() -> torch.nn.ModuleDict:
        return torch.nn.ModuleDict(
            {
                "mean": MeanTracker(0.1),
                "quantiles": QuantileTracker(3, 0.2),
                "pairs": PairAverages(0.3),
                "logarithms": PairAverages(0.3, space="log"),
                "threshold": ThresholdTracker(2),
            }
        )

    @rule(data=st.data(), with_previous=st.booleans())
    def observe(self, data: st.DataObject, with_previous: bool) -> None:
        count = data.draw(st.integers(1, 5))
        ids = torch.tensor(data.draw(groups(count)))
        scores = torch.tensor(data.draw(st.lists(VALUES, min_size=count * 4, max_size=count * 4))).view(count, 4)
        present = torch.tensor(data.draw(st.lists(st.booleans(), min_size=count, max_size=count)))
        previous = scores[:, 1] if with_previous else None
        pairs, size = torch.stack([ids, ids.flip(0)], 1), torch.full((count,), 4)
        share = torch.full((count, 4), 0.25)
        answers = []
        for each in (self.left, self.right):
            answers.append(
                [
                    each["mean"](scores[:, 0], present, ids, previous),
                    each["quantiles"](scores[:, :3].sort(1).values, present, ids),
                    each["pairs"](pairs, scores[:, 0]),
                    each["logarithms"](pairs, scores[:, 0]),
                    *each["threshold"](scores, share, size, ids),
                ]
            )
        for one, other in zip(*answers, strict=True):
            assert bool(torch.isfinite(one).all())
            assert torch.equal(one, other)

    @rule()
    def restart(self) -> None:
        file = io.BytesIO()
        torch.save(self.left.state_dict(), file)
        file.seek(0)
        training, self.left = self.left.training, self.fresh()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # a state that has seen nothing says so
            self.left.load_state_dict(torch.load(file, weights_only=True))
        self.left.train(training)

    @rule(training=st.booleans())
    def train(self, training: bool) -> None:
        self.left.train(training)
        self.right.train(training)

    @rule(data=st.data())
    def look_in_eval_mode(self, data: st.DataObject) -> None:
        before, training = copy.deepcopy(self.left.state_dict()), self.left.training
        self.left.eval()
        ids = torch.tensor(data.draw(groups(2)))
        self.left["mean"](torch.ones(2), torch.ones(2, dtype=torch.bool), ids)
        self.left["pairs"](torch.stack([ids, ids], 1), torch.ones(2))
        self.left["threshold"](torch.ones(2, 3), torch.full((2, 3), 1 / 3), torch.tensor([3, 3]), ids)
        after = self.left.state_dict()
        assert all(torch.equal(before[name], after[name]) for name in before)
        self.left.train(training)

    @invariant()
    def states_are_equal_and_finite(self) -> None:
        left, right = self.left.state_dict(), self.right.state_dict()
        for name, tensor in left.items():
            assert torch.equal(tensor, right[name]), name
            assert not tensor.is_floating_point() or bool(torch.isfinite(tensor).all()), name


class Recent(RuleBasedStateMachine):
    """`RecentRows` beside a list of batches."""

    def __init__(self) -> None:
        super().__init__()
        self.recent, self.batches = RecentRows(10), []

    @rule(classes=st.lists(IDS, max_size=10))
    def add(self, classes: list[int]) -> None:
        self.recent.add(torch.ones(len(classes), 2), torch.tensor(classes, dtype=torch.int64))
        self.batches.append(classes)
        while sum(map(len, self.batches)) > 10:
            self.batches.pop(0)

    @rule()
    def restart(self) -> None:
        state = copy.deepcopy(self.recent.state_dict())
        self.recent = RecentRows(10)
        self.recent.load_state_dict(state)

    @invariant()
    def holds_the_last_batches(self) -> None:
        assert self.recent.classes.tolist() == [each for batch in self.batches for each in batch]
        assert self.recent.vectors.shape[0] == len(self.recent)


@pytest.mark.parametrize("examples", [FEW, pytest.param(MANY, marks=pytest.mark.slow)], ids=["few", "many"])
@pytest.mark.parametrize("machine", [Table, PairTable, Trackers, Recent])
def test_any_order_of_events_leaves_the_right_state(machine, examples):
    run_state_machine_as_test(
        machine,
        settings=settings(
            max_examples=examples,
            stateful_step_count=12,
            deadline=None,
            database=None,
            derandomize=examples == FEW,
            suppress_health_check=list(HealthCheck),
        ),
    )
