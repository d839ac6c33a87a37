"""Recommendation: what is known when, all items ranked, sampled lists, and that every model learns."""

from __future__ import annotations

import math
from functools import partial

import pytest
import torch
from torch import nn

from rankwise.data import Interactions, InteractionSchema, Split, cut_histories, hold_out, leave_one_out
from rankwise.losses import NDCGLoss, SwitchLoss
from rankwise.models import EASE, Blend, standardise
from rankwise.problems import Recommendation, batches
from rankwise.runs import load_run, train
from rankwise.samplers.queries import HistoryBatchSampler
from rankwise.testing import check_sampler
from rankwise.training import fit
from workers.fitting import fit_with

USERS, ITEMS = 160, 30


def made_up(seed=0):
    """Users like two of six kinds of films: about 70 % of the films of those kinds, 3 % of the others."""
    generator = torch.Generator().manual_seed(seed)
    liked = torch.rand(USERS, 6, generator=generator).argsort(1)[:, :2]
    chance = torch.full((USERS, ITEMS), 0.03)
    for kind in range(6):
        chance[(liked == kind).any(1), kind::6] = 0.7
    users, items = (torch.rand(USERS, ITEMS, generator=generator) < chance).nonzero(as_tuple=True)
    return Interactions(users, items, None, None, tuple(map(str, range(USERS))), tuple(map(str, range(ITEMS))))


def split_of(pairs):
    rest, test = hold_out(pairs, share=0.2, seed=1)
    return Split(*hold_out(rest, share=0.1, seed=2), test)


DATA = split_of(made_up())
PARTS = cut_histories(DATA)
SCHEMA = InteractionSchema(DATA.train.user_names, DATA.train.item_names)
FAST = {"optimiser": {"learning_rate": 0.02, "weight_decay": 0.1}, "schedule": {"name": "constant"}}


class Table(nn.Module):
    """Scores by item, whatever the history."""

    def __init__(self, scores):
        super().__init__()
        self.scores = nn.Parameter(scores)

    def forward(self, history):
        return self.scores.expand(len(history), -1)


def pairs_of(part):
    return set(zip(part.users.tolist(), part.items.tolist(), strict=True))


def slow_ndcg(scores, data, part, k):
    """NDCG@k of each user, from the words of the docstring."""
    train, validation = pairs_of(data.train), pairs_of(data.validation)
    known = {"train": set(), "validation": train, "test": train | validation}[part]
    wanted = pairs_of(getattr(data, part))
    values = []
    for user in range(USERS):
        ranked = [i for i in sorted(range(ITEMS), key=lambda i: -scores[i]) if (user, i) not in known]
        hits = [(user, item) in wanted for item in ranked]
        ideal = sum(1 / math.log2(2 + place) for place in range(min(k, sum(hits))))
        gained = sum(hit / math.log2(2 + place) for place, hit in enumerate(hits[:k]))
        values.append(gained / ideal if ideal else float("nan"))
    return torch.tensor(values, dtype=torch.float64)


@pytest.mark.parametrize("part", ["train", "validation", "test"])
@pytest.mark.parametrize("cells", [2**22, 7 * ITEMS, 1])
def test_all_items_are_ranked_but_those_known_then(part, cells, monkeypatch):
    monkeypatch.setattr(batches, "_CELLS", cells)
    scores = torch.randperm(ITEMS, generator=torch.Generator().manual_seed(3)).float()
    problem = Recommendation(metrics=("ndcg@5", "recall@5"))
    found = problem.evaluate(Table(scores), PARTS.part(part)).per_query["ndcg@5"]
    torch.testing.assert_close(found, slow_ndcg(scores.tolist(), DATA, part, 5), equal_nan=True)


def test_judging_leaves_the_mode_of_a_model_as_it_was():
    problem = Recommendation()
    model = problem.build_model(SCHEMA).train()
    first, second = (problem.evaluate(model, PARTS.test).means for _ in range(2))
    assert first == second
    assert model.training


@pytest.mark.parametrize("name", ["blend", "item-item", "matrix-factorisation", "neumf"])
@pytest.mark.parametrize("cells", [2**22, 7 * ITEMS, 1])
def test_scores_are_those_of_the_model_in_evaluation_mode(name, cells, monkeypatch):
    monkeypatch.setattr(batches, "_CELLS", cells)
    problem = Recommendation(model={"name": name, "dimensions": 4})
    model = problem.build_model(SCHEMA)
    features = PARTS.test.known.dense() if name in ("blend", "item-item") else torch.arange(USERS)
    expected = model.eval()(features).detach()
    torch.testing.assert_close(problem.predict(model.train(), PARTS.test), expected)
    assert model.training


def test_a_batch_of_whole_lists_holds_each_user_once():
    batches = list(Recommendation(batches={"users": 8}).train_loader(PARTS.train, seed=0))
    assert sorted(torch.cat([batch.query_ids for batch in batches]).tolist()) == list(range(USERS))
    train = pairs_of(DATA.train)
    for batch in batches:
        assert torch.equal(batch.features, batch.labels)
        for user, row in zip(batch.query_ids.tolist(), batch.labels, strict=True):
            assert {(user, item) for item in row.nonzero().squeeze(1).tolist()} == {p for p in train if p[0] == user}


def test_a_sampled_batch_holds_the_items_asked_for_with_their_labels():
    batches = {"users": 8, "relevant": 3, "irrelevant": 9}
    problem = Recommendation(model={"name": "matrix-factorisation"}, batches=batches)
    train = pairs_of(DATA.train)
    for batch in problem.train_loader(PARTS.train, seed=0):
        pairs = [tuple(pair) for pair in batch.features.tolist()]
        assert len(set(pairs)) == len(pairs)
        assert batch.labels.tolist() == [int(pair in train) for pair in pairs]
        assert batch.features.T.tolist() == [batch.query_ids.tolist(), batch.sample_ids.tolist()]
        for user in batch.query_ids.unique().tolist():
            own = batch.query_ids == user
            chosen = sum(pair[0] == user for pair in train)
            assert int(batch.labels[own].sum()) == min(3, chosen)
            assert int(own.sum()) == min(3, chosen) + 9


def test_sampled_items_are_uniform():
    sampler = HistoryBatchSampler([0, 0, 0], [1, 4, 5], items=8, users=1, relevant=1, irrelevant=2)
    counts = torch.zeros(8)
    for _ in range(3000):
        (batch,) = list(sampler)
        counts[batch] += 1
    expected = torch.tensor([2 / 5, 1 / 3, 2 / 5, 2 / 5, 1 / 3, 1 / 3, 2 / 5, 2 / 5])
    assert (counts / 3000 - expected).abs().max() < 0.04


def test_the_sampler_keeps_the_contract():
    pairs = DATA.train
    build = partial(HistoryBatchSampler, pairs.users, pairs.items, items=ITEMS, users=6, relevant=2, irrelevant=5)
    check_sampler(build, items=USERS * ITEMS, even_shares=False)


@pytest.mark.parametrize(
    "users, items, message",
    [
        ([0, 1], [0], "item_ids"),
        ([], [], "user_ids: expected shape"),
        ([-1], [0], "user_ids: expected shape"),
        ([0], [5], "item_ids: expected 0 to 4, got 5 to 5"),
    ],
)
def test_pairs_that_cannot_be_are_refused(users, items, message):
    ids = [torch.tensor(x, dtype=torch.int64) for x in (users, items)]
    with pytest.raises(ValueError, match=message):
        HistoryBatchSampler(*ids, items=5, users=1, relevant=1, irrelevant=1)


def test_a_loss_of_sampled_lists_is_told_what_the_lists_hold():
    options = {"model": {"name": "neumf"}, "batches": {"relevant": 2, "irrelevant": 4}}

    def built(**changes):
        return Recommendation(**changes).build_loss(SCHEMA, PARTS.train, steps=50)

    loss = built(**options)
    assert isinstance(loss, NDCGLoss)
    assert loss.totals.size.tolist() == [ITEMS] * USERS
    assert loss.totals.relevant.tolist() == DATA.train.users.bincount().tolist()
    assert built().totals is None
    warmed = built(**options, warm_up={"loss": "solc", "steps": 7})
    assert isinstance(warmed, SwitchLoss)
    assert warmed.losses[0].totals.size.tolist() == [ITEMS] * USERS


def test_the_last_layer_is_drawn_anew_after_the_warm_up():
    warm_up = {"loss": "solc", "steps": 1, "learning_rate": 0.5, "reset_last_layer": True}
    problem = Recommendation(
        model={"name": "neumf", "dimensions": 8},
        warm_up=warm_up,
        batches={"users": 32, "relevant": 2, "irrelevant": 4},
    )
    model, loss = problem.build_model(SCHEMA), problem.build_loss(SCHEMA, PARTS.train, steps=3)
    changed = []
    for batch, _ in zip(problem.train_loader(PARTS.train, seed=0), range(3), strict=False):
        before = {name: weights.clone() for name, weights in model.named_parameters()}
        problem.training_step(model, loss, batch)
        changed.append([name for name, weights in model.named_parameters() if not torch.equal(weights, before[name])])
    assert changed[0] == changed[2] == []
    assert changed[1], "the second step is the first after the warm-up"
    optimiser = torch.optim.SGD(model.parameters(), lr=problem.optimiser.learning_rate)
    problem.build_schedule(optimiser, 3)
    assert optimiser.param_groups[0]["lr"] == pytest.approx(0.5)


def ndcg(problem, model):
    return problem.evaluate(model, PARTS.test).means["ndcg@20"]


def assert_learned(problem, model):
    """Better than by popularity. K-SONG learns the head of the training lists; the gain on others varies by seed."""
    gains = {
        name: problem.evaluate(model, part).means["ndcg@20"] - problem.evaluate(popularity(), part).means["ndcg@20"]
        for name, part in (("train", PARTS.train), ("test", PARTS.test))
    }
    assert gains["train"] > 0.1
    assert gains["test"] > 0.05 or problem.loss.name == "k-song"


def popularity():
    return Table(torch.bincount(DATA.train.items, minlength=ITEMS).float())


@pytest.mark.parametrize("loss", [{"name": "song", "discount_shift": 5}, {"name": "k-song", "k": 10}, "softmax", "bpr"])
@pytest.mark.parametrize("model", [{"input_dropout": 0.2}, {"name": "matrix-factorisation"}, {"name": "neumf"}])
def test_every_model_learns_what_users_like(loss, model):
    hidden = {"hidden": (16,)} if model.get("name") == "neumf" else {}
    problem = Recommendation(loss=loss, model={"dimensions": 8, **model, **hidden}, batches={"users": 20})
    run = fit_with(problem, PARTS, schema=SCHEMA, steps=150, every=None, **FAST)
    assert_learned(problem, run.model)


@pytest.mark.parametrize("loss", ["song", "k-song", "solc", "sampled-softmax"])
def test_sampled_lists_teach_too(loss):
    problem = Recommendation(
        loss=loss,
        model={"name": "matrix-factorisation", "dimensions": 8},
        batches={"users": 20, "relevant": 3, "irrelevant": 6},
        metrics=("ndcg@20",),
    )
    run = fit_with(problem, PARTS, schema=SCHEMA, steps=200, every=None, **FAST)
    assert_learned(problem, run.model)


def test_an_ease_of_the_training_pairs_is_corrected():
    problem = Recommendation(model={"name": "item-item", "dimensions": 4, "ease": 10.0})
    model = problem.build_model(SCHEMA)
    assert not model.base.any()
    problem.fit_model(model, PARTS.train)
    ease = EASE(ITEMS, regularisation=10.0).fit(PARTS.train.known.dense())
    assert torch.equal(model.base, 20 * ease.weights)
    assert ndcg(problem, model) > ndcg(problem, popularity()) + 0.05


def test_leave_one_out_is_judged_on_one_item_a_user():
    problem = Recommendation(metrics=("hit@10", "recall@10"))
    found = problem.evaluate(problem.build_model(SCHEMA), cut_histories(leave_one_out(made_up(), by="random")).test)
    assert torch.equal(found.per_query["hit@10"], found.per_query["recall@10"])


@pytest.mark.parametrize("seed", [0, 1])
def test_held_out_pairs_are_the_share_asked_for(seed):
    pairs = made_up(seed)
    kept, held = hold_out(pairs, share=0.3, seed=seed)
    assert pairs_of(kept) | pairs_of(held) == pairs_of(pairs)
    assert not pairs_of(kept) & pairs_of(held)
    counts, of_held = (part.users.bincount(minlength=USERS) for part in (pairs, held))
    assert torch.equal(of_held, (counts * 0.3).round().long())


CLOSED = {"regularisation": (2.0, 20.0), "popularity": (0.0, 0.3), "share": (0.2, 0.6)}


def blended(**closed_form):
    return Recommendation(
        model={"dimensions": 8, "closed_form": {**CLOSED, **closed_form}},
        batches={"users": 40},
        metrics=("ndcg@10",),
        budget={"epochs": 10},
        evaluation={"every": 20},
    )


def test_the_blend_takes_what_is_best_on_validation():
    problem = blended()
    model = fit_with(problem, PARTS, schema=SCHEMA, steps=40, every=None, **FAST).model
    before = {name: value.clone() for name, value in model.trained.state_dict().items()}
    settings = problem.complete_model(model, PARTS)
    found = {}
    for regularisation in CLOSED["regularisation"]:
        for power in CLOSED["popularity"]:
            for share in CLOSED["share"]:
                ease = EASE(ITEMS, regularisation=regularisation, user_power=0.5, popularity_power=power)
                other = Blend(model.trained, ease.fit(PARTS.train.known.dense()))
                other.share.fill_(share)
                value = problem.evaluate(other, PARTS.validation).means["ndcg@10"]
                found[regularisation, power, share] = value
    chosen = tuple(settings[name] for name in ("regularisation", "popularity", "share"))
    assert found[chosen] == pytest.approx(max(found.values()), abs=1e-6)
    assert settings["validation"] == pytest.approx(found[chosen], abs=1e-6)
    assert problem.evaluate(model, PARTS.validation).means["ndcg@10"] == pytest.approx(found[chosen], abs=1e-6)
    assert all(torch.equal(value, before[name]) for name, value in model.trained.state_dict().items())


def test_the_closed_form_is_refitted_to_validation_pairs_with_the_settings_that_were_chosen():
    problem = blended()
    model = problem.build_model(SCHEMA)
    settings = {"regularisation": 20.0, "popularity": 0.3, "share": 0.6, "validation": 0.5}
    both = PARTS.train.join(PARTS.validation)
    assert problem.complete_model(model, Split(both), settings) == settings
    ease = EASE(ITEMS, regularisation=20.0, user_power=0.5, popularity_power=0.3).fit(PARTS.test.known.dense())
    torch.testing.assert_close(model.solved.weights, ease.weights)
    assert float(model.share) == pytest.approx(0.6)


def test_the_default_is_a_refitted_blend_that_ranks_for_new_users(tmp_path):
    pairs = made_up()
    problem = blended().changed(data={"test": 0.2})
    run = train(problem, train=pairs, out=tmp_path / "run")
    popular = problem.evaluate(popularity(), run.part("test")).means["ndcg@10"]
    assert run.test.means["ndcg@10"] > popular + 0.1
    assert run.record["refit"]["settings"] == run.record["settings"]
    opened = load_run(tmp_path / "run")
    history = run.part("test").known.dense()[:1]
    new = Interactions(
        torch.zeros(int(history.sum()), dtype=torch.int64),
        history[0].nonzero().squeeze(1),
        None,
        None,
        ("new",),
        pairs.item_names,
    )
    with pytest.warns(match="are not in the training data"):
        scores = opened.predict(new).outputs
    model = run.model.eval()
    expected = torch.lerp(standardise(model.solved(history)), standardise(model.trained(history)), model.share)
    torch.testing.assert_close(scores, expected.detach())


def test_above_the_limit_other_items_are_ranked_by_the_trained_model():
    problem = blended(most=5)
    model = problem.build_model(SCHEMA)
    problem.complete_model(model, PARTS)
    assert len(model.solved.columns) == 5
    assert model.eval()(PARTS.test.known.dense()[:3]).shape == (3, ITEMS)


def test_a_share_of_each_users_pairs_is_held_out_for_the_test():
    pairs = made_up()
    problem = Recommendation(data={"test": 0.3, "validation": 0.2})
    parts = problem.cut(problem.read({"train": pairs})[1], 5)
    kept, held = hold_out(pairs, share=0.3, seed=5)
    assert parts.test.wanted.dense().sum() == len(held)
    assert parts.test.known.dense().sum() == len(kept)
    assert parts.train.known.dense().sum() == len(hold_out(kept, share=0.2, seed=5)[0])


def test_metrics_among_sampled_items_stand_beside_the_full_ones():
    problem = Recommendation(model={"name": "item-item"}, metrics=("ndcg@5", "hit@5"), sampled_items=6)
    torch.manual_seed(0)
    model = problem.build_model(SCHEMA).eval()
    result = problem.evaluate(model, PARTS.test)
    name = "hit@5 among 6 sampled items"
    assert "biased" in result.definitions[name]
    assert result.means["hit@5"] < result.means[name] <= 1
    assert problem.evaluate(model, PARTS.test).means == result.means  # the same items every time
    scores, test, hits = problem.predict(model, PARTS.test), PARTS.test, []
    for user in range(len(test)):
        wanted, known = (rows.dense(torch.tensor([user]))[0] > 0 for rows in (test.labels, test.known))
        others = (~wanted & ~known).nonzero()[:, 0].tolist()
        keys = torch.rand(ITEMS, generator=torch.Generator().manual_seed(user)).tolist()
        drawn = sorted(others, key=lambda item: -keys[item])[:6]
        candidates = wanted.nonzero()[:, 0].tolist() + drawn
        best = sorted(candidates, key=lambda item: -scores[user, item].item())[:5]
        if wanted.any():
            hits.append(any(bool(wanted[item]) for item in best))
    assert result.means[name] == pytest.approx(sum(hits) / len(hits))
    everything = problem.changed(sampled_items=ITEMS).evaluate(model, test).means
    assert everything[f"ndcg@5 among {ITEMS} sampled items"] == pytest.approx(everything["ndcg@5"])


def test_training_is_evaluated_on_the_users_asked_for_and_not_before_it():
    problem = Recommendation(model={"name": "item-item"}, batches={"users": 32}, refit=False, **FAST)
    options = {"every": 2, "at_start": False, "rows": 20}
    part = PARTS.validation.take(torch.arange(20) * len(PARTS.validation) // 20)
    fitted = fit(problem.changed(budget={"steps": 4}, evaluation=options), SCHEMA, PARTS)
    assert fitted.history.steps == [2, 4]
    fitted.model.eval()
    assert fitted.history.metrics[-1]["ndcg@20"] == pytest.approx(problem.evaluate(fitted.model, part).means["ndcg@20"])
