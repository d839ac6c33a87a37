"""Compare pair sums by the Triton kernel with sorted and dense ones; run with TRITON_INTERPRET=1.

Prints the name of each surrogate, and the largest error of values and of gradients, relative to the largest of each.
"""

from __future__ import annotations

import torch

from rankwise.lists import ItemMask
from rankwise.pairs.by_kernel import KINDS
from rankwise.pairs.sums import _PairSums, pair_sums

PARAMETERS = (0.1, 0.5, 1.0)


def gradients(sums, inputs, upstream):
    return [sums.detach(), *torch.autograd.grad(sums, inputs, upstream)]


def error(found, exact):
    return ((found - exact).abs().max() / exact.abs().max()).item()


def main() -> None:
    random = torch.Generator().manual_seed(0)
    for kind in KINDS:
        worst = [0.0, 0.0]
        for parameter, (lists, width, length) in zip(PARAMETERS, ((3, 70, 300), (1, 5, 33), (2, 33, 129)), strict=True):
            surrogate = kind(parameter)
            anchors = 0.4 * torch.randn(lists, width, generator=random)
            others = 0.4 * torch.randn(lists, length, generator=random)
            weights = torch.rand(lists, length, generator=random)
            anchor_mask = torch.rand(lists, width, generator=random) < 0.8
            mask = torch.rand(lists, length, generator=random) < 0.7
            upstream = torch.rand(lists, width, generator=random)
            for weighted, masked in ((False, False), (True, True)):
                given = [anchors, others, *([weights] if weighted else [])]
                masks = (anchor_mask, mask) if masked else (None, None)
                exact = [each.double().requires_grad_() for each in given]
                method = "dense" if surrogate.pieces is None else "sorted"
                sums = pair_sums(
                    exact[0],
                    exact[1],
                    surrogate,
                    weights=exact[2] if weighted else None,
                    anchor_mask=masks[0],
                    other_mask=masks[1],
                    method=method,
                )
                expected = gradients(sums, exact, upstream.double())
                leaves = [each.clone().requires_grad_() for each in given]
                found = _PairSums.apply(
                    leaves[0],
                    None,
                    leaves[1],
                    leaves[2] if weighted else None,
                    masks[0],
                    ItemMask(masks[1]),
                    surrogate,
                    "kernel",
                )
                value, *changes = map(error, gradients(found, leaves, upstream), expected)
                worst = [max(worst[0], value), max(worst[1], *changes)]
        print(kind.__name__, *worst)


if __name__ == "__main__":
    main()
