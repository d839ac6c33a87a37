"""Whatever keeps a state goes on after any way of saving it as if it had never been saved: the next 20 steps equal."""

from __future__ import annotations

import copy
import io
import pickle
import warnings
from functools import cache

import cloudpickle
import joblib
import numpy as np
import pytest
import safetensors.torch
import torch

from rankwise.sklearn import APClassifier, NDCGRanker, PApRanker
from workers.processes import CONTEXT
from workers.stateful import KINDS, take_steps, take_steps_elsewhere

STEPS = range(5, 25)
USE = {"unused": range(0), "used": range(5)}
EVERYTHING = [(kind, name) for kind, (builds, _) in KINDS.items() for name in builds]
WITH_STATE_DICT = [(kind, name) for kind, name in EVERYTHING if kind != "metric"]
OF_TENSORS = [(kind, name) for kind, name in EVERYTHING if kind in ("loss", "estimator")]


def build(kind, name, use):
    thing = KINDS[kind][0][name]()
    if kind == "class of torchmetrics":
        thing.persistent(True)  # torchmetrics saves states only if told to
    take_steps(kind, name, thing, USE[use])
    return thing


def by_joblib(thing):
    file = io.BytesIO()
    joblib.dump(thing, file)
    file.seek(0)
    return joblib.load(file)


def by_torch(thing, **options):
    file = io.BytesIO()
    torch.save(thing, file)
    file.seek(0)
    return torch.load(file, **options)


COPIES = {
    "pickle": lambda thing: pickle.loads(pickle.dumps(thing)),
    "oldest pickle": lambda thing: pickle.loads(pickle.dumps(thing, protocol=2)),
    "deepcopy": copy.deepcopy,
    "torch.save": lambda thing: by_torch(thing, weights_only=False),
    "cloudpickle": lambda thing: pickle.loads(cloudpickle.dumps(thing)),
    "joblib": by_joblib,
}
STATES = {
    "itself": lambda state: state,
    "deepcopy": copy.deepcopy,
    "torch.save": lambda state: by_torch(state, weights_only=True),
    "pickle": lambda state: pickle.loads(pickle.dumps(state)),
    "plain dict": dict,
}


def loaded(kind, name, state, **options):
    thing = build(kind, name, "unused")
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="the loaded loss state has seen nothing")
        thing.load_state_dict(state, **options)
    return thing


# A used one serves every test: `check` compares its state before and after.
original = cache(build)


@cache
def expected(kind, name, use):
    """What the next steps give when nothing is saved."""
    if kind == "sampler":  # a pass that goes on: another one would begin the epoch again
        return take_steps(kind, name, build(kind, name, "unused"), [*USE[use], *STEPS])[-len(STEPS) :]
    return take_steps(kind, name, build(kind, name, use), STEPS)


def check(kind, name, use, thing, again):
    before = state_of(thing)
    assert take_steps(kind, name, again, STEPS) == expected(kind, name, use)
    assert state_of(thing) == before, "the copy shares its state with the original"


def state_of(thing):
    """The numbers of a state, in any container."""
    if isinstance(thing, torch.Tensor):
        return thing.tolist()
    if isinstance(thing, dict):
        return {key: state_of(value) for key, value in thing.items()}
    if isinstance(thing, list):
        return [state_of(value) for value in thing]
    return state_of(thing.state_dict()) if hasattr(thing, "state_dict") else thing


def slow(values, quick):
    """All values as parameters, those not among the quick ones for `make test-all`."""
    return [value if value in quick else pytest.param(value, marks=pytest.mark.slow) for value in values]


uses = pytest.mark.parametrize("use", slow(USE, ["used"]))
ESTIMATORS = {
    "APClassifier": lambda: APClassifier(model="network", members=1, max_iter=4, random_state=0),
    "NDCGRanker": lambda: NDCGRanker(members=1, max_iter=4, random_state=0),
    "PApRanker": lambda: PApRanker(k=2, members=1, max_iter=4, random_state=0),
}


def fit_and_score(model, *, fit):
    """The scores of an estimator, after a fit if that is still to come."""
    random = np.random.default_rng(0)
    X, lists = random.normal(size=(60, 3)), np.arange(60) // 6
    y = (X[:, 0] > 0.3).astype(int)
    if fit:
        model.fit(X, y, **({} if isinstance(model, APClassifier) else {"qid": lists}))
    return (model.decision_function if isinstance(model, APClassifier) else model.predict)(X)


@pytest.mark.parametrize("use", USE)
@pytest.mark.parametrize("way", slow(COPIES, ["pickle"]))
@pytest.mark.parametrize("name", ESTIMATORS)
def test_a_copy_of_an_estimator_scores_as_the_original(name, way, use):
    model = ESTIMATORS[name]()
    used = use == "used"
    if used:
        fit_and_score(model, fit=True)
    again = COPIES[way](model)
    np.testing.assert_array_equal(fit_and_score(again, fit=not used), fit_and_score(model, fit=not used))


@uses
@pytest.mark.parametrize("way", slow(COPIES, ["pickle", "deepcopy", "torch.save"]))
@pytest.mark.parametrize("kind, name", EVERYTHING)
def test_a_copy_goes_on_as_the_original(kind, name, way, use):
    thing = original(kind, name, use)
    check(kind, name, use, thing, COPIES[way](thing))


@uses
@pytest.mark.parametrize("way", slow(STATES, ["torch.save"]))
@pytest.mark.parametrize("kind, name", WITH_STATE_DICT)
def test_a_loaded_state_goes_on_as_the_original(kind, name, way, use):
    thing = original(kind, name, use)
    check(kind, name, use, thing, loaded(kind, name, STATES[way](thing.state_dict())))


@uses
@pytest.mark.parametrize("kind, name", OF_TENSORS)
def test_a_state_in_safetensors_goes_on_as_the_original(kind, name, use):
    thing = original(kind, name, use)
    state = safetensors.torch.load(safetensors.torch.save(thing.state_dict()))
    check(kind, name, use, thing, loaded(kind, name, state))


@pytest.mark.slow
@pytest.mark.parametrize("use", USE)
@pytest.mark.parametrize("kind, name", OF_TENSORS)
def test_a_state_loaded_without_strictness_goes_on_as_the_original(kind, name, use):
    thing = original(kind, name, use)
    check(kind, name, use, thing, loaded(kind, name, thing.state_dict(), strict=False))


@uses
def test_what_is_sent_to_another_process_goes_on_there_as_here(use):
    """Tensors sent to a process share their memory with it; what is written there must not be seen here."""
    things = {(kind, name): build(kind, name, use) for kind, name in EVERYTHING}
    sent, results = CONTEXT.Queue(), CONTEXT.Queue()
    process = CONTEXT.Process(target=take_steps_elsewhere, args=(sent, list(STEPS), results))
    process.start()
    sent.put(things)
    found = results.get(timeout=300)
    process.join(timeout=60)
    there = [key for key in things if found[key] != expected(*key, use)]
    assert not there
    here = [
        key for key in things if key[0] != "sampler" and take_steps(*key, things[key], STEPS) != expected(*key, use)
    ]
    assert not here
