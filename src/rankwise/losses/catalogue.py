"""Every loss by name; one table per metric, the methods of the papers first and their rivals after them."""

from __future__ import annotations

from functools import partial

from rankwise.losses.auprc import AUPRCLoss
from rankwise.losses.listwise import ListwiseCELoss
from rankwise.losses.ndcg import NDCGLoss
from rankwise.losses.pap import PApLoss
from rankwise.losses.rivals import (
    APLoss,
    ApproxNDCGLoss,
    BalancedCrossEntropyLoss,
    BlackboxAPLoss,
    BPRLoss,
    CrossEntropyLoss,
    FastAPLoss,
    FocalLoss,
    GreedyTopKLoss,
    GumbelApproxNDCGLoss,
    HingePartialAUCLoss,
    HistogramAPLoss,
    LambdaLoss,
    LambdaRankLoss,
    LDAMLoss,
    ListMLELoss,
    ListNetLoss,
    NeuralNDCGLoss,
    PairwiseAUROCLoss,
    PrecisionAtKLoss,
    RankNetLoss,
    SampledSoftmaxLoss,
    SmoothAPLoss,
    SOAPLoss,
    SoftmaxLoss,
    SquaredErrorLoss,
    metric_learning,
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
        advice="the first thing to try; gives probabilities",
    ),
    LossRecord(
        name="balanced-cross-entropy",
        aliases=("balanced-ce",),
        summary="rival: binary cross entropy with positives and negatives weighing the same",
        build=BalancedCrossEntropyLoss,
        shift_invariant=False,
        advice="few positives, batches drawn like the data",
    ),
    LossRecord(
        name="class-balanced-cross-entropy",
        aliases=("class-balanced-ce",),
        summary="rival: binary cross entropy weighed by the effective number of each kind",
        build=partial(BalancedCrossEntropyLoss, 0.999),
        shift_invariant=False,
        paper="Cui et al., CVPR 2019",
        advice="between plain and balanced; pass the `counts` of the data",
    ),
    LossRecord(
        name="focal",
        summary="rival: cross entropy that cares less for items already right",
        build=FocalLoss,
        shift_invariant=False,
        paper="Lin et al., ICCV 2017",
        advice="very many easy negatives (detection)",
    ),
    LossRecord(
        name="ldam",
        summary="rival: cross entropy with a wider margin for the rarer kind",
        build=LDAMLoss,
        shift_invariant=False,
        paper="Cao et al., NeurIPS 2019",
        advice="long-tailed classes; pass the `counts` of the data",
    ),
    LossRecord(
        name="pairwise-auroc",
        aliases=("auroc",),
        summary="rival: area under the ROC curve, over all pairs",
        build=PairwiseAUROCLoss,
        paper="Yan et al., ICML 2003",
        advice="all thresholds matter alike, not the top of the ranking",
    ),
    LossRecord(
        name="smooth-ap",
        summary="rival: average precision of the batch, its steps made sigmoids",
        build=SmoothAPLoss,
        paper="Brown et al., ECCV 2020",
        advice="retrieval with large batches",
    ),
    LossRecord(
        name="soap",
        summary="rival: average precision from moving averages kept for every positive",
        build=SOAPLoss,
        shift_invariant=False,
        paper="Qi et al., NeurIPS 2021",
        state="two numbers for each positive, by `sample_ids`; the batch alone without them",
        advice="one list, few positives, each seen often",
    ),
    LossRecord(
        name="histogram-ap",
        summary="rival: average precision from soft histograms of the scores",
        build=HistogramAPLoss,
        shift_invariant=False,
        paper="Revaud et al., ICCV 2019",
        advice="retrieval with very large batches: linear in the items",
    ),
    LossRecord(
        name="fast-ap",
        summary="rival: histogram average precision with the bins of FastAP",
        build=FastAPLoss,
        shift_invariant=False,
        paper="Cakir et al., CVPR 2019",
        advice="as histogram-ap, coarser and smoother",
    ),
    LossRecord(
        name="blackbox-ap",
        summary="rival: exact average precision, its gradient from a second ranking",
        build=BlackboxAPLoss,
        paper="Rolinek et al., CVPR 2020",
        advice="a gradient that does not vanish for hopeless items",
    ),
    LossRecord(
        name="ap-loss",
        summary="rival: average precision by error-driven updates",
        build=APLoss,
        paper="Chen et al., CVPR 2019",
        advice="detection; badly wrong pairs still move",
    ),
    LossRecord(
        name="contrastive",
        summary="rival: pairs of a class near, others apart (pytorch-metric-learning)",
        build=metric_learning.contrastive,
        inputs="embeddings",
        paper="Hadsell et al., CVPR 2006",
        advice="retrieval, the plainest",
    ),
    LossRecord(
        name="triplet",
        summary="rival: nearer to its own class than to others by a margin (pytorch-metric-learning)",
        build=metric_learning.triplet,
        inputs="embeddings",
        paper="Weinberger and Saul, JMLR 2009",
        advice="retrieval with small batches: cubic in their size",
    ),
    LossRecord(
        name="multi-similarity",
        summary="rival: pairs weighed by their own and each other's similarities (pytorch-metric-learning)",
        build=metric_learning.multi_similarity,
        inputs="embeddings",
        paper="Wang et al., CVPR 2019",
        advice="retrieval, a strong rival on classes not seen in training",
    ),
    LossRecord(
        name="fast-ap-pairs",
        summary="rival: FastAP as in pytorch-metric-learning",
        build=metric_learning.pair_histograms,
        inputs="embeddings",
        paper="Cakir et al., CVPR 2019",
        advice="to compare with `fast-ap`, the same loss over lists",
    ),
    LossRecord(
        name="cross-batch-memory",
        aliases=("xbm",),
        summary="rival: contrastive loss against a memory of earlier batches (pytorch-metric-learning)",
        build=metric_learning.cross_batch_memory,
        inputs="embeddings",
        paper="Wang et al., CVPR 2020",
        state="the last 1,024 vectors and their classes",
        advice="retrieval with small batches, late in training",
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

NDCG_RIVALS = (
    LossRecord(
        name="lambdaloss",
        aliases=("ndcg-loss2++",),
        summary="rival: pairs weighed by the change of NDCG and the distance of ranks (NDCG-Loss2++)",
        build=LambdaLoss,
        labels="grades",
        paper="Wang et al., CIKM 2018",
    ),
    LossRecord(
        name="lambdarank",
        summary="rival: pairs weighed by the change of NDCG if they swapped places",
        build=LambdaRankLoss,
        labels="grades",
        paper="Burges et al., NeurIPS 2006",
    ),
    LossRecord(
        name="approx-ndcg",
        summary="rival: NDCG with ranks counted by sigmoids",
        build=ApproxNDCGLoss,
        labels="grades",
        paper="Qin et al., Information Retrieval 2010",
    ),
    LossRecord(
        name="gumbel-approx-ndcg",
        summary="rival: ApproxNDCG averaged over scores with Gumbel noise",
        build=GumbelApproxNDCGLoss,
        labels="grades",
        paper="Bruch et al., WSDM 2020",
    ),
    LossRecord(
        name="neural-ndcg",
        summary="rival: NDCG through a differentiable sort",
        build=NeuralNDCGLoss,
        labels="grades",
        paper="Pobrotyn and Bialobrzeski, 2021",
    ),
    LossRecord(
        name="listnet",
        summary="rival: cross entropy between the softmax of grades and that of scores",
        build=ListNetLoss,
        labels="grades",
        paper="Cao et al., ICML 2007",
    ),
    LossRecord(
        name="listmle",
        summary="rival: likelihood of the order of grades, ties by Efron's rule",
        build=ListMLELoss,
        labels="grades",
        paper="Xia et al., ICML 2008",
    ),
    LossRecord(
        name="softmax",
        summary="rival: multinomial likelihood of the relevant items",
        build=SoftmaxLoss,
        labels="grades",
        paper="Liang et al., WWW 2018",
    ),
    LossRecord(
        name="sampled-softmax",
        summary="rival: likelihood of each relevant item against sampled irrelevant ones",
        build=SampledSoftmaxLoss,
        paper="Bengio and Senecal, IEEE TNN 2008",
    ),
    LossRecord(
        name="ranknet",
        summary="rival: logistic loss of all pairs of different grades",
        build=RankNetLoss,
        labels="grades",
        paper="Burges et al., ICML 2005",
    ),
    LossRecord(
        name="bpr",
        summary="rival: logistic loss of all pairs of a relevant and an irrelevant item",
        build=BPRLoss,
        paper="Rendle et al., UAI 2009",
    ),
    LossRecord(
        name="squared-error",
        aliases=("mse",),
        summary="rival: squared distance of scores from grades or gains, item by item",
        build=SquaredErrorLoss,
        labels="grades",
        shift_invariant=False,
        paper="Cossock and Zhang, COLT 2006",
    ),
)

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
