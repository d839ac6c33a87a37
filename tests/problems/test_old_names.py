"""The names of 0.1 still give the classes of the problems."""

from __future__ import annotations

import pytest

import rankwise.tasks
from rankwise.problems import KINDS, problem_class


@pytest.mark.parametrize("name", rankwise.tasks.__all__)
def test_an_old_name_gives_the_problem_and_warns(name):
    with pytest.warns(FutureWarning, match=rf"rankwise\.tasks\.{name} is deprecated .* use rankwise\.problems\."):
        problem = getattr(rankwise.tasks, name)
    assert problem in {problem_class(kind) for kind in KINDS}
