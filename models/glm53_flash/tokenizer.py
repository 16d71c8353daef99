"""Tokenizer of a checkpoint directory, and the byte-level one that made checkpoints get."""

from __future__ import annotations

import json
from itertools import chain, islice, product
from pathlib import Path

from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

from sgl_amd_mono.errors import CheckpointError

TOKENIZER_FILE = "tokenizer.json"
END_OF_TEXT = "<|endoftext|>"
MIN_VOCAB = 257

# the space as byte-level BPE spells it, then letters by frequency in English
_MERGED_LETTERS = "Ġetaoinshrdlcumwfgypbvkjxqz,."


def load_tokenizer(directory: Path | str) -> Tokenizer:
    """Read `directory`/tokenizer.json. Raises CheckpointError when it is missing or damaged."""
    path = Path(directory) / TOKENIZER_FILE
    if not path.is_file():
        raise CheckpointError(f"{path}: missing; a checkpoint directory has one")
    try:
        return Tokenizer.from_file(str(path))
    except Exception as error:
        # the library raises bare Exception for every parse error
        raise CheckpointError(f"{path}: not a tokenizer ({error})") from error


def make_tokenizer(vocab_size: int) -> Tokenizer:
    """Byte-level BPE of `vocab_size` tokens: 256 bytes, merges of frequent letters, and the end-of-text token, last.

    Any text encodes, every id decodes. Raises CheckpointError below 257 tokens.
    """
    if vocab_size < MIN_VOCAB:
        raise CheckpointError(f"vocab {vocab_size}: byte-level needs at least {MIN_VOCAB} tokens")
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    pairs = list(product(_MERGED_LETTERS, _MERGED_LETTERS))
    tokens = ["".join(pair) for pair in pairs]
    merges = list(islice(chain(pairs, product(tokens, tokens)), vocab_size - MIN_VOCAB))
    vocab = {token: index for index, token in enumerate([*alphabet, *("".join(merge) for merge in merges)])}

    tokenizer = Tokenizer(models.BPE(vocab=vocab, merges=merges))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens([AddedToken(END_OF_TEXT, special=True)])
    return tokenizer


def write_tokenizer(directory: Path, vocab_size: int) -> int:
    """Write tokenizer.json and tokenizer_config.json; return the id of the end-of-text token."""
    tokenizer = make_tokenizer(vocab_size)
    tokenizer.save(str(directory / TOKENIZER_FILE))
    settings = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "eos_token": END_OF_TEXT,
        "pad_token": END_OF_TEXT,
        "clean_up_tokenization_spaces": False,
    }
    (directory / "tokenizer_config.json").write_text(json.dumps(settings, indent=2) + "\n")
    return vocab_size - 1
