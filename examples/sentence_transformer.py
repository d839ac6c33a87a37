"""SentenceTransformerTrainer: find numpy's functions by what they do, with all functions ranked in every step.

python examples/sentence_transformer.py runs/functions 4     # folder, epochs; goes on where the folder ends"""

import re
import sys

import numpy as np
from sentence_transformers import SentenceTransformer, SentenceTransformerTrainer, SentenceTransformerTrainingArguments
from sentence_transformers.sentence_transformer.modules import StaticEmbedding
from tokenizers import Tokenizer
from tokenizers.models import BPE
from tokenizers.pre_tokenizers import Whitespace
from tokenizers.trainers import BpeTrainer
from transformers import set_seed
from transformers.trainer_utils import get_last_checkpoint

from rankwise.text import CorpusRankingLoss, GradedRetrievalEvaluator

set_seed(0)
pages = {name: (getattr(np, name).__doc__ or "").split("See Also") for name in sorted(np.__all__)[::3]}
pages = {name: page for name, page in pages.items() if len(page) > 1 and len(page[0]) > 500}
corpus = {name: page[0][300:] for name, page in pages.items()}
queries = {name: page[0][:300] for name, page in pages.items()}
judgements = {  # a function answers its own question, those it names under "See Also" do so in part
    name: {other: 1 for other in pages if re.search(rf"\b{other}\b", page[1][:400])} | {name: 2}
    for name, page in pages.items()
}
words = Tokenizer(BPE())
words.pre_tokenizer = Whitespace()
words.train_from_iterator([*corpus.values(), *queries.values()], BpeTrainer(vocab_size=2000, show_progress=False))
model = SentenceTransformer(modules=[StaticEmbedding(words, embedding_dim=32)], device="cpu")
loss = CorpusRankingLoss(model, corpus, judgements, refresh=10)
folder, epochs = sys.argv[1:] if len(sys.argv) == 3 else sys.exit(__doc__)
options = {"learning_rate": 1e-2, "lr_scheduler_type": "constant", "save_strategy": "epoch", "report_to": "none"}
arguments = SentenceTransformerTrainingArguments(folder, num_train_epochs=int(epochs), use_cpu=True, **options)
data = loss.dataset(queries)
trainer = SentenceTransformerTrainer(model, arguments, train_dataset=data, loss=loss, callbacks=[loss.callback])
trainer.train(resume_from_checkpoint=get_last_checkpoint(folder))
print(GradedRetrievalEvaluator(queries, corpus, judgements)(model))
