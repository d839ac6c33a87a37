"""CrossEncoderTrainer: rerank numpy's functions for what they do, lists of any lengths with grades.

python examples/cross_encoder.py runs/reranker 4     # folder, epochs; goes on where the folder ends"""

import sys

import numpy as np
from datasets import Dataset
from sentence_transformers.cross_encoder import CrossEncoder, CrossEncoderTrainer, CrossEncoderTrainingArguments
from tokenizers import Tokenizer
from tokenizers.models import BPE
from tokenizers.pre_tokenizers import Whitespace
from tokenizers.trainers import BpeTrainer
from transformers import BertConfig, BertForSequenceClassification, PreTrainedTokenizerFast, set_seed
from transformers.trainer_utils import get_last_checkpoint

import rankwise as rw
from rankwise.text import CrossEncoderListLoss

set_seed(0)
folder, epochs = sys.argv[1:] if len(sys.argv) == 3 else sys.exit(__doc__)
pages = {name: (getattr(np, name).__doc__ or "")[:400] for name in sorted(np.__all__)[::12]}
queries = [name for name, page in pages.items() if len(page) == 400]
docs = [[pages[each] for each in queries[i : i + 3 + i % 3]] for i in range(len(queries))]  # 3 to 5; the first is right
labels = [[2, *[0] * (len(each) - 2), 1][: len(each)] for each in docs]
words = Tokenizer(BPE())
words.pre_tokenizer = Whitespace()
words.train_from_iterator(pages.values(), BpeTrainer(vocab_size=1000, special_tokens=["[PAD]"], show_progress=False))
sizes = {"hidden_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 64, "num_labels": 1}
BertForSequenceClassification(BertConfig(vocab_size=1000, **sizes)).save_pretrained(f"{folder}-start")
PreTrainedTokenizerFast(tokenizer_object=words, **{"pad_token": "[PAD]"}).save_pretrained(f"{folder}-start")
model = CrossEncoder(f"{folder}-start", num_labels=1, max_length=128, device="cpu")
options = {"learning_rate": 1e-3, "lr_scheduler_type": "constant", "save_strategy": "epoch", "report_to": "none"}
arguments = CrossEncoderTrainingArguments(folder, num_train_epochs=int(epochs), use_cpu=True, **options)
lists = Dataset.from_dict({"query": queries, "docs": docs, "labels": labels})
trainer = CrossEncoderTrainer(model, arguments, train_dataset=lists, loss=CrossEncoderListLoss(model, "ndcg"))
trainer.train(resume_from_checkpoint=get_last_checkpoint(folder))
scores = [model.predict([(query, doc) for doc in own]) for query, own in zip(queries, docs, strict=True)]
ids, grades = np.repeat(range(len(docs)), [len(own) for own in docs]), np.concatenate(labels)
print(rw.evaluate(np.concatenate(scores), grades, ["ndcg"], query_ids=ids).means)
