"""The results as Markdown: figures of the chosen settings, overfitting, and paired differences over users."""

from __future__ import annotations

from benchmarks.quality.ml1m.methods import EASE_LAMBDAS, METHODS, SCORERS
from benchmarks.quality.ml1m.plan import DECAYS, EPOCHS, RATE, SEEDS, USERS, Key
from benchmarks.quality.ml1m.results import Results
from rankwise.metrics import compare

__all__ = ["write_table"]

_ABOUT = (
    "`python -m benchmarks.quality.ml1m`: MovieLens-1M (6,040 users, 3,706 films), all films ranked but those known. "
    f"A tenth of each user's training films is the validation part. Item-item of rank {SCORERS['item-item']} with "
    f"input dropout .5, matrix factorisation of {SCORERS['matrix-factorisation']} dimensions; every loss sees whole "
    f"lists, {EPOCHS} epochs of {USERS} users a step, AdamW {RATE:g} (betas .9, .99; x .3 in the last quarter). Weight "
    f"decay from {sorted(DECAYS)}, for EASE lambda from {[int(x) for x in EASE_LAMBDAS]}, is chosen by validation "
    "NDCG@20 with the first seed. Nothing is fitted again on validation films, but at the test they are part of the "
    "history that item-item and EASE read. With whole lists of 0 and 1 SOLC is the softmax loss. "
    "The last two columns are NDCG@20. A dash: not run."
)


def write_table(results: Results) -> str:
    """The whole page."""
    rows = [(scorer, method.name, method.ours) for scorer in SCORERS for method in METHODS]
    rows.append(("EASE", "closed form", False))
    lines = [
        _ABOUT,
        "",
        "| scorer | loss | decay or lambda | seeds | NDCG@20 | NDCG@10 | recall@20 | validation | train |",
        "|---|---|--:|--:|--:|--:|--:|--:|--:|",
    ]
    chosen: dict[tuple[str, str], list[Key]] = {}
    for scorer, method, _ in rows:
        keys = _keys(results, scorer, method)
        if not keys:
            lines.append(f"| {scorer} | {method} | - | - | - | - | - | - | - |")
            continue
        chosen[scorer, method] = keys
        names = ("ndcg_20", "ndcg_10", "recall_20", "validation", "train")
        means = [sum(getattr(results[key], name) for key in keys) / len(keys) for name in names]
        figures = " | ".join(f"{mean:.4f}" for mean in means)
        lines.append(f"| {scorer} | {method} | {keys[0].setting:g} | {len(keys)} | {figures} |")
    ours = [(scorer, method) for scorer, method, mine in rows if mine and (scorer, method) in chosen]
    if ours:
        best = max(ours, key=lambda row: results[chosen[row][0]].validation)
        lines += ["", *_differences(results, chosen, best)]
    return "\n".join(lines) + "\n"


def _keys(results: Results, scorer: str, method: str) -> list[Key]:
    """The cells of the chosen setting, one per seed."""
    if scorer == "EASE":
        best = results.chosen(scorer, method, -1)
        return [] if best is None else [best]
    best = results.chosen(scorer, method, SEEDS[0])
    keys = [] if best is None else [Key(scorer, method, best.setting, seed) for seed in SEEDS]
    return [key for key in keys if key in results]


def _differences(results: Results, chosen: dict[tuple[str, str], list[Key]], best: tuple[str, str]) -> list[str]:
    own = results.per_user(chosen[best])
    lines = [
        f"{best[1]} with {best[0]} (the NDCG loss that did best on validation) minus each other, test NDCG@20 of the "
        "same users (means over seeds), with 95 % bootstrap intervals and a paired permutation test:",
        "",
        "| against | difference | 95 % interval | p | users better / worse |",
        "|---|--:|--:|--:|--:|",
    ]
    for row, keys in chosen.items():
        other = results.per_user(keys)
        if row == best or own is None or other is None:
            continue
        found = compare(own, other)
        low, high = found.interval
        lines.append(
            f"| {row[0]}, {row[1]} | {found.difference:+.4f} | {low:+.4f} to {high:+.4f} | {found.p_value:.2g} | "
            f"{found.wins} / {found.losses} |"
        )
    return lines
