"""Small tables are learned on one thread; the number of threads of the caller stays."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy import sparse
from threadpoolctl import threadpool_info

from rankwise.sklearn import APClassifier
from rankwise.sklearn.learning import one_thread


@pytest.fixture
def three_threads():
    before = torch.get_num_threads()
    torch.set_num_threads(3)
    yield
    torch.set_num_threads(before)


@pytest.mark.usefixtures("three_threads")
@pytest.mark.parametrize("table", [np.zeros((50, 4)), sparse.csr_matrix((2_000_001, 50))], ids=["dense", "sparse"])
def test_a_small_table_has_one_thread(table):
    with one_thread(table):
        assert torch.get_num_threads() == 1
        assert {pool["num_threads"] for pool in threadpool_info()} == {1}
    assert torch.get_num_threads() == 3


@pytest.mark.usefixtures("three_threads")
def test_a_large_table_has_all_threads():
    with one_thread(np.broadcast_to(0.0, (2_000_001, 1))):
        assert torch.get_num_threads() == 3


@pytest.mark.usefixtures("three_threads")
def test_a_failure_restores_the_number_of_threads():
    rows, labels = np.zeros((20, 2)), np.arange(20) % 2
    with pytest.raises(ValueError, match="no-such-loss"):
        APClassifier(loss="no-such-loss").fit(rows, labels)
    with pytest.raises(RuntimeError, match="inside"), one_thread(rows):
        raise RuntimeError("inside")
    assert torch.get_num_threads() == 3
