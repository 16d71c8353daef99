"""Facts on disk, keyed by the hash of the source they came from."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import sys
import tempfile
from functools import cache
from pathlib import Path
from typing import Any


@cache
def _maker() -> bytes:
    """Part of every key: the checker's own source, and the Python that spells expressions."""
    digest = hashlib.sha256(repr(sys.version_info[:2]).encode())
    for file in sorted(Path(__file__).parent.glob("*.py")):
        digest.update(file.read_bytes())
    return digest.digest()


class Store:
    """JSON values in a folder, one file a key. Without a folder nothing is kept."""

    def __init__(self, folder: Path | None) -> None:
        self._folder = folder

    def get(self, *key: str | bytes) -> Any:
        """The value under `key`, or None. A file that cannot be read counts as absent: it is made again."""
        if self._folder is None:
            return None
        try:
            return json.loads(self._file(key).read_bytes())
        except (OSError, ValueError):
            return None

    def put(self, value: Any, *key: str | bytes) -> None:
        """Keep `value` under `key`; readers in other processes see a whole file or none."""
        if self._folder is None:
            return
        file = self._file(key)
        # a folder that cannot be written costs time, never a verdict
        with contextlib.suppress(OSError):
            file.parent.mkdir(parents=True, exist_ok=True)
            with tempfile.NamedTemporaryFile("w", dir=file.parent, delete=False) as partial:
                json.dump(value, partial, separators=(",", ":"))
            os.replace(partial.name, file)

    def _file(self, key: tuple[str | bytes, ...]) -> Path:
        assert self._folder is not None
        digest = hashlib.sha256(_maker())
        for part in key:
            digest.update(hashlib.sha256(part.encode() if isinstance(part, str) else part).digest())
        return self._folder / digest.hexdigest()[:2] / f"{digest.hexdigest()}.json"
