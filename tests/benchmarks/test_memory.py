"""A list of a million items in memory that grows with the items, not with the pairs."""

from __future__ import annotations

import pytest

from benchmarks.speed.peak import peak_in_new_process


@pytest.mark.slow
@pytest.mark.parametrize("contender", ["rankwise AUPRCLoss (SOPRC)", "rankwise StableAPLoss"])
def test_ten_thousand_positives_among_a_million_need_memory_of_the_order_of_the_items(contender):
    """Forward and backward in a process of its own, by its resident memory; all pairs would take 37 GiB in float32."""
    peak, note = peak_in_new_process("one-list", "10,000 + 990,000", contender)
    if peak is None:
        pytest.skip(note)
    # 32 numbers of 8 bytes for each of the million items.
    assert peak < 32 * 8 * 1_000_000 / 2**20, peak
    # And the measurement sees the tensors: the sorted float64 scores and their order alone are 15 MiB.
    assert peak > 15
