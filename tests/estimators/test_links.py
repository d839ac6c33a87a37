"""The running spread by which scores are divided: one for each group, from the first spread beyond 1 on."""

from __future__ import annotations

import pytest
import torch

from rankwise.estimators.groups import Link
from rankwise.lists import pack


def scale_of(link, spread, group):
    scores = torch.tensor([[-1.0, 1.0, -1.0, 1.0]]) * spread
    _, scale = link.with_scale(pack(scores, torch.tensor([[1, 0, 0, 1]])), torch.tensor([group]))
    return 1.0 if scale is None else float(scale)


def test_each_group_has_a_spread_of_its_own_that_starts_beyond_1_and_is_averaged_from_then_on():
    link, expected = Link("scale", update_rate=0.25), {}
    for group, spread in [(7, 0.5), (7, 4), (-3, 8), (7, 0.5), (-3, 0.5), (-3, 2), (7, 6), (5, 0.5), (-3, 0.5), (5, 3)]:
        now = max(1.0, spread)
        if group in expected:
            expected[group] += 0.25 * (now - expected[group])
        elif now > 1:
            expected[group] = now
        assert scale_of(link, spread, group) == pytest.approx(expected.get(group, 1.0))
    link.eval()
    for group, spread in expected.items():
        assert scale_of(link, 9, group) == pytest.approx(spread)
    assert len(link.spreads) == 3


def test_a_group_without_a_spread_takes_that_of_its_list():
    link = Link("scale").eval()
    assert scale_of(link, 3, 11) == pytest.approx(3)
    assert not len(link.spreads)
