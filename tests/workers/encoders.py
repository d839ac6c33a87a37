"""Tiny transformers with random weights, made from the words of some texts: nothing is downloaded."""

from __future__ import annotations

from pathlib import Path

import torch


def make_tokenizer(texts):
    """Return a tokenizer that knows the words of these texts."""
    from tokenizers import Tokenizer
    from tokenizers.models import WordLevel
    from tokenizers.pre_tokenizers import Whitespace
    from tokenizers.processors import TemplateProcessing
    from transformers import PreTrainedTokenizerFast

    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]"]
    words = [*special, *sorted({word for text in texts for word in text.split()})]
    numbers = {word: number for number, word in enumerate(words)}
    tokenizer = Tokenizer(WordLevel(numbers, unk_token=special[1]))
    tokenizer.pre_tokenizer = Whitespace()
    tokenizer.post_processor = TemplateProcessing(
        single="[CLS] $A [SEP]", pair="[CLS] $A [SEP] $B:1 [SEP]:1", special_tokens=[("[CLS]", 2), ("[SEP]", 3)]
    )
    names = {"pad_token": "[PAD]", "unk_token": "[UNK]", "cls_token": "[CLS]", "sep_token": "[SEP]"}
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, model_max_length=32, **names), len(words)


def _config(words: int, **more):
    from transformers import BertConfig

    sizes = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 32}
    return BertConfig(vocab_size=words, max_position_embeddings=40, hidden_dropout_prob=0.0, **sizes, **more)


def make_encoder(folder: Path, texts, seed: int = 0) -> Path:
    """Save a sentence-transformers model of 16 dimensions; return its folder."""
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.sentence_transformer.modules import Pooling, Transformer
    from transformers import BertModel

    torch.manual_seed(seed)
    tokenizer, words = make_tokenizer(texts)
    BertModel(_config(words, attention_probs_dropout_prob=0.0)).save_pretrained(folder / "bert")
    tokenizer.save_pretrained(folder / "bert")
    transformer = Transformer(str(folder / "bert"))
    model = SentenceTransformer(modules=[transformer, Pooling(16, "mean")], device="cpu")
    model.save(str(folder / "model"))
    return folder / "model"


def make_cross_encoder(folder: Path, texts, seed: int = 0) -> Path:
    """Save a cross-encoder with one output; return its folder."""
    from transformers import BertForSequenceClassification

    torch.manual_seed(seed)
    tokenizer, words = make_tokenizer(texts)
    BertForSequenceClassification(_config(words, num_labels=1, attention_probs_dropout_prob=0.0)).save_pretrained(
        folder
    )
    tokenizer.save_pretrained(folder)
    return folder
