from __future__ import annotations

from pathlib import Path
from types import ModuleType

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sgl_amd_mono.errors import CheckpointError
from sgl_amd_mono.models.glm53_flash.tokenizer import END_OF_TEXT, load_tokenizer, make_tokenizer, write_tokenizer

TOKENIZER = make_tokenizer(1024)


@given(st.text())
def test_any_text_survives(text: str) -> None:
    ids = TOKENIZER.encode(text).ids
    assert all(0 <= token < 1024 for token in ids)
    assert TOKENIZER.decode(ids) == text.replace(END_OF_TEXT, "")


@pytest.mark.parametrize("vocab_size", [257, 300, 1024, 2000, 154880])
def test_every_id_decodes(vocab_size: int) -> None:
    tokenizer = make_tokenizer(vocab_size)
    assert tokenizer.get_vocab_size() == vocab_size
    assert sorted(tokenizer.get_vocab().values()) == list(range(vocab_size))
    assert tokenizer.token_to_id(END_OF_TEXT) == vocab_size - 1


def test_frequent_letters_are_merged() -> None:
    assert len(TOKENIZER.encode("the tree").ids) < len("the tree")


def test_written_tokenizer_loads_here_and_in_transformers(tmp_path: Path, transformers: ModuleType) -> None:
    end_of_text = write_tokenizer(tmp_path, 1024)
    text = "Ein Süßstoff, 甘味料 \n\t{}🙂"
    upstream = transformers.AutoTokenizer.from_pretrained(tmp_path)
    ids = load_tokenizer(tmp_path).encode(text).ids
    assert upstream(text)["input_ids"] == ids
    assert upstream.decode(ids) == text
    assert upstream.eos_token_id == end_of_text == 1023


def test_errors(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match=r"tokenizer\.json: missing"):
        load_tokenizer(tmp_path)
    (tmp_path / "tokenizer.json").write_text("{}")
    with pytest.raises(CheckpointError, match="not a tokenizer"):
        load_tokenizer(tmp_path)
    with pytest.raises(CheckpointError, match="at least 257"):
        make_tokenizer(256)
