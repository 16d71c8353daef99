from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from sgl_amd_mono.build import cache
from sgl_amd_mono.errors import BuildError

KEY = "0123456789abcdef" * 4


@pytest.fixture(autouse=True)
def empty_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SGLANG_AMD_MONO_CACHE", str(tmp_path / "cache"))


def write(text: str) -> Callable[[Path], None]:
    def make(folder: Path) -> None:
        (folder / "kernel.co").write_text(text)
        (folder / "kernel.s").write_text("text")

    return make


def refuse(folder: Path) -> None:
    raise AssertionError("made again")


def test_made_once() -> None:
    assert cache.lookup(KEY) is None
    entry, cached = cache.fetch(KEY, write("code"))
    assert (entry / "kernel.co").read_text() == "code"
    assert not cached
    assert cache.fetch(KEY, refuse) == (entry, True)
    assert cache.lookup(KEY) == entry


def test_sums_are_those_of_sha256sum() -> None:
    entry, _ = cache.fetch(KEY, write("code"))
    subprocess.run(["sha256sum", "--check", "--strict", "SHA256SUMS"], cwd=entry, check=True, capture_output=True)


@pytest.mark.parametrize(
    "damage",
    [
        lambda entry: os.truncate(entry / "kernel.co", 2),
        lambda entry: (entry / "kernel.co").write_text("cide"),
        lambda entry: (entry / "kernel.co").unlink(),
        lambda entry: (entry / "SHA256SUMS").unlink(),
        lambda entry: (entry / "SHA256SUMS").write_text(""),
        lambda entry: (entry / "SHA256SUMS").write_bytes(b"\xff\xfe"),
        lambda entry: [file.unlink() for file in entry.iterdir()],
    ],
    ids=["truncated", "changed", "file missing", "sums missing", "sums empty", "sums not text", "empty"],
)
def test_damaged_entry_is_made_again(damage: Callable[[Path], object]) -> None:
    entry, _ = cache.fetch(KEY, write("code"))
    damage(entry)
    assert cache.lookup(KEY) is None
    assert cache.fetch(KEY, write("code")) == (entry, False)
    assert (entry / "kernel.co").read_text() == "code"


def test_failure_leaves_nothing_behind() -> None:
    def fail(folder: Path) -> None:
        (folder / "kernel.co").write_text("half")
        raise BuildError("does not compile")

    with pytest.raises(BuildError, match="does not compile"):
        cache.fetch(KEY, fail)
    assert cache.lookup(KEY) is None
    assert [path.name for path in cache.folder().iterdir()] == [f".{KEY}.lock"]


def test_killed_builder_blocks_nobody() -> None:
    """A process that dies in the middle of a build leaves neither an entry nor a held lock."""
    script = (
        "import os\n"
        "from sgl_amd_mono.build import cache\n"
        "def make(folder):\n"
        "    (folder / 'kernel.co').write_text('half')\n"
        "    os.kill(os.getpid(), 9)\n"
        f"cache.fetch({KEY!r}, make)\n"
    )
    assert subprocess.run([sys.executable, "-c", script], check=False).returncode == -9
    assert cache.lookup(KEY) is None
    _, cached = cache.fetch(KEY, write("code"))
    assert not cached


def test_concurrent_builders_make_it_once() -> None:
    builders = 8
    together = threading.Barrier(builders)
    made = []

    def make(folder: Path) -> None:
        made.append(folder)
        # long enough for the others to see that there is no entry yet
        time.sleep(0.05)
        write("code")(folder)

    def build() -> tuple[Path, bool]:
        together.wait()
        return cache.fetch(KEY, make)

    with ThreadPoolExecutor(builders) as pool:
        results = [future.result() for future in [pool.submit(build) for _ in range(builders)]]
    assert len(made) == 1
    assert {entry for entry, _ in results} == {cache.folder() / KEY}
    assert sorted(cached for _, cached in results) == [False] + [True] * (builders - 1)


def test_folder_follows_the_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert cache.folder() == tmp_path / "cache"
    monkeypatch.delenv("SGLANG_AMD_MONO_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", "/var/cache/me")
    assert cache.folder() == Path("/var/cache/me/sgl-amd-mono")
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", "/home/me")
    assert cache.folder() == Path("/home/me/.cache/sgl-amd-mono")


def test_unwritable_folder_says_what_to_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("SGLANG_AMD_MONO_CACHE", str(tmp_path / "file" / "cache"))
    with pytest.raises(BuildError, match=r"Cannot write.*SGLANG_AMD_MONO_CACHE"):
        cache.fetch(KEY, refuse)
