"""Every loss by name; one table per metric, the methods of the papers first and their rivals after them."""

from __future__ import annotations

from rankwise.losses.auprc import AUPRCLoss
from rankwise.losses.listwise import ListwiseCELoss
from rankwise.losses.ndcg import NDCGLoss
from rankwise.losses.pap import PApLoss
from rankwise.losses.rivals import (
    BalancedCrossEntropyLoss,
    CrossEntropyLoss,
    GreedyTopKLoss,
    HingePartialAUCLoss,
    PrecisionAtKLoss,
)
from rankwise.losses.semi_variance import SemiVariance
from rankwise.losses.stable_ap import StableAPLoss
from rankwise.losses.top_k_ndcg import TopKNDCGLoss
from rankwise.registry import LossRecord

__all__ = ["RECORDS"]

AVERAGE_PRECISION = (
    LossRecord(
        name="auprc",
        aliases=("soprc",),
        summary="average precision (area under the precision-recall curve), from batches of any composition",
        build=AUPRCLoss,
        paper="Wen et al., NeurIPS 2022 (SOPRC)",
    ),
    LossRecord(
        name="stable-ap",
        summary="average precision, as a bound that no single example can move far",
        build=StableAPLoss,
        paper="Wen et al., Chinese Journal of Computers 2025",
    ),
    LossRecord(
        name="semi-variance",
        summary="add-on: pulls low positives and high negatives towards the mean of their kind",
        build=SemiVariance,
        paper="Wen et al., NeurIPS 2022, equation (9)",
    ),
)

AVERAGE_PRECISION_RIVALS = (
    LossRecord(
        name="cross-entropy",
        aliases=("ce",),
        summary="rival: binary cross entropy of logits",
        build=CrossEntropyLoss,
        shift_invariant=False,
    ),
    LossRecord(
        name="balanced-cross-entropy",
        aliases=("balanced-ce",),
        summary="rival: binary cross entropy with positives and negatives weighing the same",
        build=BalancedCrossEntropyLoss,
        shift_invariant=False,
    ),
)

NDCG: tuple[LossRecord, ...] = (
    LossRecord(
        name="ndcg",
        aliases=("song",),
        summary="NDCG of graded lists, whole or sampled",
        build=NDCGLoss,
        labels="grades",
        paper="Qiu et al., ICML 2022 (SONG)",
    ),
    LossRecord(
        name="top-k-ndcg",
        aliases=("k-song",),
        summary="NDCG@k of graded lists, whole or sampled",
        build=TopKNDCGLoss,
        labels="grades",
        paper="Qiu et al., ICML 2022 (K-SONG)",
    ),
    LossRecord(
        name="listwise-cross-entropy",
        aliases=("solc",),
        summary="softmax cross entropy of graded lists, whole or sampled: a warm-up for NDCG",
        build=ListwiseCELoss,
        labels="grades",
        paper="Qiu et al., ICML 2022, appendix B (SOLC)",
    ),
)

NDCG_RIVALS: tuple[LossRecord, ...] = ()

PAP = (
    LossRecord(
        name="pap",
        summary="pAp@k: the best positives of a list above its k best negatives",
        build=PApLoss,
        paper="Hiranandani et al., ICML 2020",
    ),
)

PAP_RIVALS = (
    LossRecord(
        name="hinge-partial-auc",
        summary="rival: partial AUC over small false positive rates, with hinges",
        build=HingePartialAUCLoss,
        paper="Narasimhan and Agarwal, 2017",
    ),
    LossRecord(
        name="precision-at-k",
        summary="rival: precision@k by its average surrogate",
        build=PrecisionAtKLoss,
        paper="Kar, Narasimhan and Jain, ICML 2015",
    ),
    LossRecord(
        name="greedy-top-k",
        summary="rival: the hinge loss of a classifier, on the top positives and negatives only",
        build=GreedyTopKLoss,
        shift_invariant=False,
    ),
)

RECORDS = (*AVERAGE_PRECISION, *AVERAGE_PRECISION_RIVALS, *NDCG, *NDCG_RIVALS, *PAP, *PAP_RIVALS)
