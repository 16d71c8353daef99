"""Cache of build results: one folder a key, published whole or not at all."""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from sgl_amd_mono import env
from sgl_amd_mono.errors import BuildError

# the sums of an entry's files, in the format of `sha256sum --check`
_SUMS = "SHA256SUMS"


def folder() -> Path:
    """Folder of the cache; it need not exist."""
    if chosen := env.CACHE.get():
        return Path(chosen)
    home = env.XDG_CACHE_HOME.get()
    return (Path(home) if home else Path.home() / ".cache") / "sgl-amd-mono"


def lookup(key: str) -> Path | None:
    """Folder of entry `key`; None when it is absent or any of its files is not what was published."""
    entry = folder() / key
    try:
        return entry if (entry / _SUMS).read_bytes() == _sums(entry) else None
    except OSError:
        return None


def fetch(key: str, make: Callable[[Path], None]) -> tuple[Path, bool]:
    """Folder of entry `key`, and whether it was there before the call.

    An absent or damaged entry is made by `make(folder)`, which fills an empty folder. Builders of the same key in other
    threads or processes wait for it and take its result; one that dies leaves no entry.

    Raises
    ------
    BuildError
        When the cache cannot be written, and whatever `make` raises.
    """
    if entry := lookup(key):
        return entry, True
    try:
        with _locked(key):
            if entry := lookup(key):
                return entry, True
            return _publish(key, make), False
    except OSError as error:
        raise BuildError(
            f"Cannot write the cache of compiled kernels: {error}. "
            f"Make {folder()} writable or point {env.CACHE.name} at a folder that is."
        ) from error


def _publish(key: str, make: Callable[[Path], None]) -> Path:
    entry = folder() / key
    with tempfile.TemporaryDirectory(prefix=f".{key[:16]}-", dir=folder()) as scratch:
        made = Path(scratch) / "entry"
        made.mkdir()
        make(made)
        (made / _SUMS).write_bytes(_sums(made))
        # only a damaged entry can be in the way: a sound one was looked up under the lock.
        if entry.exists():
            shutil.rmtree(entry)
        os.rename(made, entry)
    return entry


def _sums(entry: Path) -> bytes:
    files = sorted(path for path in entry.iterdir() if path.name != _SUMS)
    lines = (f"{hashlib.sha256(path.read_bytes()).hexdigest()}  {path.name}\n" for path in files)
    return "".join(lines).encode()


@contextmanager
def _locked(key: str) -> Iterator[None]:
    folder().mkdir(parents=True, exist_ok=True)
    with open(folder() / f".{key}.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
