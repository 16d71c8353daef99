"""docs/verification.md names tests that exist."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[1]


def test_named_tests_exist() -> None:
    text = (ROOT / "docs" / "verification.md").read_text()
    named = set(re.findall(r"\btest_\w+", text))
    files = list((ROOT / "tests").rglob("test_*.py"))
    functions = {name for file in files for name in re.findall(r"^ *def (test_\w+)", file.read_text(), re.MULTILINE)}
    assert named
    assert named - functions - {file.stem for file in files} == set()
    paths = re.findall(r"tests/[\w/]+\.py", text)
    assert [path for path in paths if not (ROOT / path).exists()] == []
