"""What a loss remembers against the truth: the truth is right, and looking changes nothing."""

from __future__ import annotations

import pytest
import torch

from rankwise.data import Part, Split, TableSchema
from rankwise.problems import SearchRanking
from rankwise.training import check_estimates
from workers.fitting import DIGITS, EIGHTS, ROWS, digits, eights, fit_with


def queries(count=30, length=20):
    """Lists of `length`, and ten of ten times as many, which are not packed together."""
    generator = torch.Generator().manual_seed(0)
    lengths = torch.tensor([length] * count + [10 * length] * 10)
    features = torch.rand(int(lengths.sum()), 4, generator=generator)
    return Part(features, (features[:, 0] * 2.9).long(), torch.arange(len(lengths)).repeat_interleave(lengths))


def make(kind, **options):
    """A problem and a split."""
    if kind == "V":
        return eights({"name": "soprc", **options}), EIGHTS
    if kind == "ensemble":
        return eights({"name": "soprc", **options}, model={**ROWS, "ensemble": {"folds": 3}}), EIGHTS
    if kind == "mu":
        return eights({"name": "stable-ap", **options}), EIGHTS
    if kind == "classes":
        return digits({"name": "soprc", **options}), DIGITS
    part = queries()
    loss = {"name": "k-song", "k": 5} if kind == "lambda" else {"name": "song"}
    batches = {"queries": 8, "relevant": 4, "irrelevant": 6}
    return SearchRanking(loss={**loss, **options}, model=ROWS, batches=batches), Split(part, part, part)


def start(problem, split):
    """A fresh model and loss."""
    schema = TableSchema.of(split.train)
    torch.manual_seed(0)
    return problem.build_model(schema), problem.build_loss(schema, split.train, steps=1)


def compare(problem, split, model, loss):
    return check_estimates(problem, model, loss, problem.probe_batch(split.train))


KINDS = ("V", "mu", "classes", "u", "lambda")


def trained(kind, steps=30):
    problem, split = make(kind)
    run = fit_with(problem, split, steps=steps, schedule={"name": "constant"}, check_memory=True)
    return problem, split, run


@pytest.mark.parametrize("kind", ["V", "mu", "classes", "ensemble"])
def test_a_memory_of_the_last_batch_only_is_exact_where_that_batch_is_everything(kind):
    problem, split = make(kind, update_rate=1.0)
    model, loss = start(problem, split)
    problem.training_step(model, loss, problem.probe_batch(split.train))
    (check,) = compare(problem, split, model, loss)
    assert check.known == check.checked > 0
    assert check.error == pytest.approx(0, abs=1e-6)
    assert check.remembered == pytest.approx(check.true, abs=1e-6)


def test_the_true_u_is_the_sum_over_the_whole_list():
    problem, split = make("u")
    model, loss = start(problem, split)
    problem.training_step(model, loss, problem.probe_batch(split.train))
    (check,) = compare(problem, split, model, loss)
    part = split.train
    scores = problem.predict(model, part).double()
    truth = []
    for query in range(40):
        mine = part.query_ids == query
        for item in (mine & (part.labels > 0)).nonzero().squeeze(1).tolist():
            truth.append((1 + scores[mine] - scores[item]).clamp_min(0).square().sum().item())
    assert check.checked == len(truth)
    assert check.mean_true == pytest.approx(sum(truth) / len(truth), rel=1e-4)
    assert check.error == pytest.approx(0, abs=1e-3)  # the first batch was everything


def test_the_true_lambda_separates_the_first_k():
    problem, split = make("lambda")
    model, loss = start(problem, split)
    problem.training_step(model, loss, problem.probe_batch(split.train))
    checks = {check.name: check for check in compare(problem, split, model, loss)}
    scores = problem.predict(model, split.train).split([20] * 30 + [200] * 10)
    assert checks["lambda"].checked == len(checks["lambda"].true) == 40
    # Packed by length; each list has its own.
    expected = sorted(own.sort(descending=True).values[5].item() for own in scores)
    assert sorted(checks["lambda"].true) == pytest.approx(expected, abs=0.05)


@pytest.mark.parametrize("kind", KINDS)
def test_looking_changes_nothing(kind):
    problem, split, run = trained(kind, steps=10)
    torch.manual_seed(5)
    run.loss.train()
    run.model.train()
    states = [{name: value.clone() for name, value in each.state_dict().items()} for each in (run.model, run.loss)]
    expected = torch.random.get_rng_state()
    compare(problem, split, run.model, run.loss)
    assert torch.equal(torch.random.get_rng_state(), expected)
    for each, before in zip((run.model, run.loss), states, strict=True):
        after = each.state_dict()
        assert after.keys() == before.keys()
        assert all(torch.equal(after[name], before[name]) for name in before)
        assert all(module.training for module in each.modules())
        assert not any(module._forward_pre_hooks for module in each.modules())


@pytest.mark.parametrize("kind", KINDS)
def test_training_is_the_same_with_and_without_checks(kind):
    problem, split, run = trained(kind)
    plain = fit_with(problem, split, schedule={"name": "constant"})
    assert run.history.losses == plain.history.losses
    assert plain.history.estimates == []
    names = {"classes": {"V"}, "lambda": {"u", "lambda"}}.get(kind, {kind})
    assert {check["name"] for check in run.history.estimates} == names
    assert sorted(check["step"] for check in run.history.estimates) == sorted([0, 10, 20, 30] * len(names))
    assert all(not check["true"] for check in run.history.estimates if check["step"] < 30)
    assert all(check["true"] for check in run.history.estimates if check["step"] == 30)


def test_a_loss_without_a_memory_has_nothing_to_check():
    plain = eights("cross-entropy", positives=None), EIGHTS
    assert compare(*plain, *start(*plain)) == []
    whole = SearchRanking(loss="song", batches={"queries": 8}), Split(queries(), queries(), queries())
    assert compare(*whole, *start(*whole)) == []
