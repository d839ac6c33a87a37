"""Main losses at common sizes, for counting what they do on an accelerator: how each is made, and its batches."""

from __future__ import annotations

from functools import partial

import torch

from rankwise.losses import (
    AUPRCLoss,
    EmbeddingLoss,
    ListStatistics,
    ListwiseCELoss,
    NDCGLoss,
    PApLoss,
    StableAPLoss,
    TopKNDCGLoss,
    create_loss,
)

__all__ = ["CASES", "sampled_lists"]

ITEMS = 1000


def one_list(seed, positives=64, negatives=960):
    random = torch.Generator().manual_seed(seed)
    labels = (torch.arange(positives + negatives) < positives).long()
    return (3 * torch.randn(len(labels), generator=random) + labels, labels), {}


def whole_lists(seed, lists=64, items=100, grades=5):
    random = torch.Generator().manual_seed(seed)
    relevant = torch.rand(lists, items, generator=random) < 0.3
    labels = torch.randint(0, grades, (lists, items), generator=random) * relevant
    labels[:, 0] = grades - 1
    return (torch.randn(lists, items, generator=random), labels), {}


def all_grades():
    random = torch.Generator().manual_seed(5)
    return torch.randint(0, 5, (200, ITEMS), generator=random) * (torch.rand(200, ITEMS, generator=random) < 0.05)


def statistics():
    return ListStatistics(all_grades().flatten(), torch.arange(200).repeat_interleave(ITEMS))


def sampled_lists(seed, lists=64, relevant=10, irrelevant=90):
    random = torch.Generator().manual_seed(seed)
    grades = all_grades()
    queries = torch.randperm(200, generator=random)[:lists]
    noise = torch.rand(lists, ITEMS, generator=random)
    among = grades[queries] > 0
    items = torch.cat(
        [(noise + kind).topk(count, 1).indices for kind, count in ((among, relevant), (~among, irrelevant))], 1
    )
    labels = grades[queries].gather(1, items)
    return (torch.randn(items.shape, generator=random), labels), {"query_ids": queries, "sample_ids": items}


def vectors(seed, size=224):
    random = torch.Generator().manual_seed(seed)
    return (torch.randn(size, 64, generator=random), torch.arange(size) // 4), {}


binary_lists = partial(whole_lists, lists=32, items=200, grades=2)

CASES = {
    "SOPRC, 64 + 960": (AUPRCLoss, one_list),
    "SOPRC of the batch, 64 + 960": (lambda: AUPRCLoss(recall="batch", link="none"), one_list),
    "stable AP, 64 + 960": (StableAPLoss, one_list),
    "SONG, 64 x 100": (NDCGLoss, whole_lists),
    "SONG, sampled 64 x 100": (lambda: NDCGLoss(statistics()), sampled_lists),
    "K-SONG, 64 x 100": (lambda: TopKNDCGLoss(10), whole_lists),
    "K-SONG, full gradient, 64 x 100": (lambda: TopKNDCGLoss(10, selector_gradient="full"), whole_lists),
    "K-SONG, sampled 64 x 100": (lambda: TopKNDCGLoss(10, statistics()), sampled_lists),
    "SOLC, 64 x 100": (ListwiseCELoss, whole_lists),
    "SOLC, sampled 64 x 100": (lambda: ListwiseCELoss(statistics()), sampled_lists),
    "pAp@10, 32 x 200": (lambda: PApLoss(10), binary_lists),
    "retrieval SOPRC, 112": (lambda: EmbeddingLoss(AUPRCLoss()), partial(vectors, size=112)),
    "retrieval SOPRC, 224": (lambda: EmbeddingLoss(AUPRCLoss()), vectors),
    "retrieval stable AP, 224": (lambda: EmbeddingLoss(StableAPLoss()), vectors),
    "retrieval Smooth-AP, 224": (lambda: EmbeddingLoss(create_loss("smooth-ap")), vectors),
    "LambdaRank, 256 x 310": (lambda: create_loss("lambdarank"), partial(whole_lists, lists=256, items=310)),
    "LambdaLoss, 64 x 100": (lambda: create_loss("lambdaloss"), whole_lists),
    "RankNet, 64 x 100": (lambda: create_loss("ranknet"), whole_lists),
    "ApproxNDCG, 64 x 100": (lambda: create_loss("approx-ndcg"), whole_lists),
    "ListNet, 64 x 100": (lambda: create_loss("listnet"), whole_lists),
    "ListMLE, 64 x 100": (lambda: create_loss("listmle"), whole_lists),
    "softmax, 64 x 100": (lambda: create_loss("softmax"), whole_lists),
    "Smooth-AP, 64 + 960": (lambda: create_loss("smooth-ap"), one_list),
    "AP-loss, 64 + 960": (lambda: create_loss("ap-loss"), one_list),
    "FastAP, 64 + 960": (lambda: create_loss("fast-ap"), one_list),
    "SOAP, 64 + 960": (lambda: create_loss("soap"), one_list),
    "pairwise AUROC, 64 + 960": (lambda: create_loss("pairwise-auroc"), one_list),
    "cross entropy, 64 + 960": (lambda: create_loss("cross-entropy"), one_list),
    "focal, 64 + 960": (lambda: create_loss("focal"), one_list),
}
