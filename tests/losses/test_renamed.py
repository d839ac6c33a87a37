"""Old names of losses give the very objects of the new names, and warn."""

from __future__ import annotations

import importlib

import pytest

from rankwise import losses


@pytest.mark.parametrize(
    "old, new",
    [("Combined", "SumLoss"), ("CrossEntropyLoss", "BinaryCrossEntropyLoss"), ("SemiVariance", "SemiVarianceLoss")],
)
def test_renamed_losses_are_found_under_the_old_name(old, new):
    with pytest.warns(FutureWarning, match=rf"losses\.{old} is deprecated .* use rankwise\.losses\.{new}"):
        assert getattr(losses, old) is getattr(losses, new)


@pytest.mark.parametrize("name", losses.baselines.__all__)
def test_baselines_are_found_under_the_old_path(name):
    rivals = importlib.import_module("rankwise.losses.rivals")
    with pytest.warns(FutureWarning, match=rf"rivals\.{name} is deprecated .* use rankwise\.losses\.baselines\.{name}"):
        assert getattr(rivals, name) is getattr(losses, name)
