"""The language that the made checkpoint speaks: what each token says, and which one follows."""

from __future__ import annotations

import random
from dataclasses import dataclass

DIGITS = 4
"""Values of a digit."""
SPECIAL_TOKENS = 3
"""Padding, beginning and end; never emitted."""


@dataclass(frozen=True)
class Language:
    """A plain token stands for a place on a cycle and for a key, a write token for a key to remember.

    The token that follows says the next place, and the key that the last write token said.

    Parameters
    ----------
    length : digits of a key, one for each KDA layer.
    vocabulary : tokens at most.
    """

    length: int = 2
    vocabulary: int = 512

    def __post_init__(self) -> None:
        if self.places < 2:
            raise ValueError(f"{self.keys} keys need over {2 * self.keys} tokens: take fewer KDA layers")

    @property
    def keys(self) -> int:
        return int(DIGITS**self.length)

    @property
    def places(self) -> int:
        return (self.vocabulary - SPECIAL_TOKENS) // self.keys - 1

    @property
    def plain_tokens(self) -> range:
        first = SPECIAL_TOKENS + self.keys
        return range(first, first + self.places * self.keys)

    def write(self, key: int) -> int:
        """The token that makes the model remember `key`."""
        return SPECIAL_TOKENS + key

    def plain(self, place: int, key: int) -> int:
        """The token that says `place` and `key`."""
        return self.plain_tokens[place % self.places * self.keys + key]

    def place(self, token: int) -> int:
        """Where on the cycle `token` is; a write token has a place too."""
        if token in self.plain_tokens:
            return (token - self.plain_tokens.start) // self.keys
        return (token - SPECIAL_TOKENS) % self.places

    def digits(self, key: int) -> list[int]:
        """Digits of `key`, the first KDA layer's first."""
        return [key // DIGITS**i % DIGITS for i in range(self.length)]

    def prompt(self, tokens: int, seed: int) -> list[int]:
        """A write token and random plain tokens, in random order: `tokens` in all."""
        draw = random.Random(seed)
        plain = draw.choices(self.plain_tokens, k=tokens - 1)
        at = draw.randrange(tokens)
        return [*plain[:at], self.write(draw.randrange(self.keys)), *plain[at:]]

    def continuation(self, prompt: list[int], tokens: int) -> list[int]:
        """What follows `prompt`, which has a write token: `tokens` of it."""
        key = next(token for token in reversed(prompt) if token not in self.plain_tokens) - SPECIAL_TOKENS
        place = self.place(prompt[-1])
        return [self.plain(place + 1 + step, key) for step in range(tokens)]
