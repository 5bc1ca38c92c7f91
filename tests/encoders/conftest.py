"""Text models for tests: a small random BERT, and a folder that only looks like a model."""

from __future__ import annotations

import json
import string

import numpy as np
import pytest

from attnknn.encoders.text_model import TextModel

TEXTS = [
    "my card is lost",
    "I lost my card yesterday, what now?",
    "what is the fee?",
    "are there fees for a transfer to another bank",
    "close my account",
    "please close the account I opened last year",
]


@pytest.fixture(autouse=True)
def cache_home(tmp_path, monkeypatch):
    """No test reads or writes the cache of the person who runs it."""
    home = tmp_path / "home"
    for variable in ("XDG_CACHE_HOME", "LOCALAPPDATA", "HOME"):
        monkeypatch.setenv(variable, str(home))
    return home


@pytest.fixture(scope="session")
def bert_folder(tmp_path_factory):
    """A sentence-transformers model with random weights: 16 numbers per text, 64 tokens."""
    pytest.importorskip("sentence_transformers", reason="needs the extra `text`")
    import torch
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.sentence_transformer.modules import Pooling, Transformer
    from transformers import BertConfig, BertModel
    from transformers.utils import logging

    logging.disable_progress_bar()
    folder = tmp_path_factory.mktemp("model")
    tokenizer = letter_tokenizer()
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        config = BertConfig(
            vocab_size=len(tokenizer),
            hidden_size=16,
            num_hidden_layers=2,
            num_attention_heads=2,
            intermediate_size=32,
            max_position_embeddings=64,
            initializer_range=0.5,  # else all texts are nearly the same
        )
        BertModel(config).save_pretrained(folder / "bert")
    tokenizer.save_pretrained(folder / "bert")
    modules = [Transformer(str(folder / "bert")), Pooling(16)]
    model = SentenceTransformer(modules=modules, device="cpu")
    model.save(str(folder / "whole"), create_model_card=False)
    return folder / "whole"


def letter_tokenizer():
    """Words are cut into letters, so that no file of words is needed."""
    from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors
    from transformers import PreTrainedTokenizerFast

    letters = string.ascii_lowercase + string.digits + ".,!?"
    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]"]
    words = [*special, *letters, *(f"##{letter}" for letter in letters)]
    vocabulary = {word: number for number, word in enumerate(words)}
    tokenizer = Tokenizer(models.WordPiece(vocabulary, unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.BertNormalizer()
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", special_tokens=[("[CLS]", 2), ("[SEP]", 3)]
    )
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        pad_token="[PAD]",
        unk_token="[UNK]",
        cls_token="[CLS]",
        sep_token="[SEP]",
        model_max_length=64,
    )


@pytest.fixture
def plain_folder(tmp_path):
    """Files that pass every check of a model but hold no weights."""
    folder = tmp_path / "plain"
    (folder / "1_Pooling").mkdir(parents=True)
    modules = [
        {"idx": 0, "name": "0", "path": "", "type": "sentence_transformers.models.Transformer"},
        {
            "idx": 1,
            "name": "1",
            "path": "1_Pooling",
            "type": "sentence_transformers.models.Pooling",
        },
    ]
    (folder / "modules.json").write_text(json.dumps(modules))
    (folder / "config.json").write_text(json.dumps({"model_type": "bert"}))
    (folder / "1_Pooling" / "config.json").write_text(json.dumps({"embedding_dimension": 8}))
    (folder / "model.safetensors").write_bytes(b"no weights")
    return folder


class Counter:
    """In place of a network: eight numbers per text, and a list of the texts it was asked for."""

    def __init__(self):
        self.asked: list[str] = []
        self.batch_sizes: set[int] = set()

    def __call__(self, texts, batch_size):
        self.asked += texts
        self.batch_sizes.add(batch_size)
        seeds = [list(text.encode()) for text in texts]
        return np.stack([np.random.default_rng(s).normal(size=8) for s in seeds]).astype(np.float32)


@pytest.fixture
def counter(monkeypatch):
    """What every text model loads to, so that no extra is needed."""
    network = Counter()
    monkeypatch.setattr(TextModel, "load", lambda self, device: network)
    return network
