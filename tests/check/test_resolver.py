"""The resolver against Python itself: a small module is run, and its objects are compared with its syntax tree."""

from __future__ import annotations

import ast
import sys
from pathlib import Path

import pytest

from sgl_amd_mono.check.errors import TreeError
from sgl_amd_mono.check.guards import alternatives, effective, on_rocm
from sgl_amd_mono.check.kinds import Kind, When
from sgl_amd_mono.check.members import Member, Members
from sgl_amd_mono.check.names import ClassAt, Names
from sgl_amd_mono.check.store import Store
from sgl_amd_mono.check.tree import open_tree
from tests.check.trees import write_tree

SOURCE = """
import abc
import functools


class A:
    label = "a"
    maybe = None

    def __init__(self):
        self.a = 1
        self.setup()
        self.first, (self.second, *self.rest) = 1, (2, 3)

    def setup(self):
        self.by_setup = "A"

    def later(self):
        self.late = 1
        self.maybe = 2

    def forget(self):
        del self.a


class Mixin:
    def __init__(self):
        super().__init__()
        self.mixed = 1

    def setup(self):
        super().setup()
        self.by_mixin = 1


class B(Mixin, A):
    @property
    def whole(self):
        return 1

    @functools.cached_property
    def cached(self):
        return 1

    def setup(self):
        setattr(self, "dynamic", 1)
        super().setup()


class Borrower(A):
    def __init__(self):
        Other.__init__(self)
        self.own = 1


class Other:
    def __init__(self):
        self.borrowed = 1
        self.setup()

    def setup(self):
        self.by_other = 1


class Skips(A):
    def __init__(self):
        self.skipped = 1


class Early(A):
    def __init__(self, stop=True):
        if stop:
            return
        super().__init__()


class Diamond(B, Borrower):
    def __init__(self):
        super(Mixin, self).__init__()


class Renamed(A):
    alias = A.later
    setup_again = functools.partial

    def __init__(this):
        this.named_otherwise = 1
        for this.counted in range(2):
            pass
        with open(__file__) as this.file:
            pass
        this.file = None
"""
_GUARDED_IMPORT = """
try:
    from sglang.b import X
except ImportError:
    X = None
"""
CLASSES = ("A", "B", "Borrower", "Other", "Skips", "Early", "Diamond", "Renamed")


@pytest.fixture
def package(tmp_path: Path) -> tuple[Members, Names, dict[str, type]]:
    """The resolver on SOURCE, and SOURCE's classes as Python made them."""
    tree = open_tree(write_tree(tmp_path, {"srt/shapes.py": SOURCE}))
    names = Names(tree, Store(None))
    namespace: dict[str, object] = {"__file__": str(tmp_path / "sglang/srt/shapes.py"), "__name__": "shapes"}
    exec(compile(SOURCE, "shapes", "exec"), namespace)
    return Members(names), names, {name: cls for name in CLASSES if isinstance(cls := namespace[name], type)}


def static(names: Names, name: str) -> ClassAt:
    found = names.class_at(f"sglang.srt.shapes:{name}")
    assert found
    return found


@pytest.mark.parametrize("name", CLASSES)
def test_order_is_python_s(package: tuple[Members, Names, dict[str, type]], name: str) -> None:
    members, names, real = package
    said = [cls.qualname for cls in members.inheritance.classes(static(names, name))]
    assert said == [cls.__name__ for cls in real[name].__mro__ if cls is not object]


@pytest.mark.parametrize("name", CLASSES)
def test_what_an_object_is_born_with_is_what_python_gives_it(
    package: tuple[Members, Names, dict[str, type]], name: str
) -> None:
    """Every name of every class is asked: present at birth exactly if a new object has it."""
    members, names, real = package
    cls, instance = static(names, name), real[name]()
    asked = {n for other in CLASSES for n in members.nearest(static(names, other)) if not n.startswith("__")}
    for attribute in sorted(asked):
        found = members.find(cls, attribute)
        born = bool(found) and found[0].when is not When.LATE and not found[0].only_if
        assert born == hasattr(instance, attribute), (name, attribute, found)


def one(package: tuple[Members, Names, dict[str, type]], cls: str, name: str) -> Member:
    members, names, _ = package
    (found,) = members.find(static(names, cls), name)
    return found


def test_time_of_an_attribute(package: tuple[Members, Names, dict[str, type]]) -> None:
    assert one(package, "A", "late").when is When.LATE
    assert one(package, "A", "late").set_by == ("later",)
    assert one(package, "A", "maybe").when is When.NULL
    assert one(package, "A", "a").deleted_by == ("forget",)
    assert one(package, "Early", "a").only_if == "not stop"
    assert one(package, "Skips", "a").when is When.LATE
    assert one(package, "A", "label").when is When.CLASS


def test_kind_and_declaration(package: tuple[Members, Names, dict[str, type]]) -> None:
    assert one(package, "B", "whole").kind is Kind.PROPERTY
    assert one(package, "B", "cached").kind is Kind.CACHED_PROPERTY
    assert one(package, "B", "mixed").declared_on.qualname == "Mixin"
    assert one(package, "B", "dynamic").kind is Kind.ATTRIBUTE


def test_class_without_consistent_order_cannot_be_checked(tmp_path: Path) -> None:
    source = "class X: pass\nclass Y(X): pass\nclass Z(X, Y): pass\n"
    names = Names(open_tree(write_tree(tmp_path, {"srt/shapes.py": source})), Store(None))
    with pytest.raises(TreeError, match="no consistent method resolution order"):
        Members(names).inheritance.order(static(names, "Z"))


def test_unknown_outside_base_makes_an_absent_name_unknown(tmp_path: Path) -> None:
    source = "import other\nimport torch\nclass X(other.Base): pass\nclass Y(torch.nn.Module): pass\n"
    names = Names(open_tree(write_tree(tmp_path, {"srt/shapes.py": source})), Store(None))
    members = Members(names)
    assert "other.Base is outside the tree" in members.unknowable(static(names, "X"))
    assert members.unknowable(static(names, "Y")) == ""


@pytest.mark.parametrize(
    ("files", "path"),
    [
        ({"a.py": "from sglang.b import X\n", "b.py": "class X: pass\n"}, "sglang.a:X"),
        ({"a.py": "from sglang.b import X as Y\n", "b.py": "class X: pass\n"}, "sglang.a:Y"),
        ({"a.py": "from sglang.b import *\n", "b.py": "class X: pass\n"}, "sglang.a:X"),
        ({"a/__init__.py": "from .b import X\n", "a/b.py": "class X: pass\n"}, "sglang.a:X"),
        ({"a/c.py": "from ..b import X\n", "b.py": "class X: pass\n"}, "sglang.a.c:X"),
        ({"a/__init__.py": "", "a/b.py": "class X: pass\n"}, "sglang.a:b.X"),
        ({"a.py": "import sglang.b as c\n", "b.py": "class X: pass\n"}, "sglang.a:c.X"),
        ({"a.py": "class W:\n    class X: pass\n"}, "sglang.a:W.X"),
        ({"a.py": "class X: pass\nY = X\n"}, "sglang.a:Y"),
        ({"a.py": _GUARDED_IMPORT, "b.py": "class X: pass\n"}, "sglang.a:X"),
        ({"a.py": "class X: pass\nfrom sglang.a import X\n"}, ""),
    ],
)  # fmt: skip
def test_name_is_followed_to_its_class(files: dict[str, str], path: str, tmp_path: Path) -> None:
    names = Names(open_tree(write_tree(tmp_path, files)), Store(None))
    if path:
        found = names.class_at(path)
        assert found
        assert found.definition.name == "X"
    else:
        # a module that imports the name from itself defines nothing: no endless search
        assert names.find("sglang.a:X") == []


def test_facts_survive_the_store(tmp_path: Path) -> None:
    """What is kept reads back equal, and a broken file is made again."""
    folder, store = write_tree(tmp_path / "tree", {"srt/shapes.py": SOURCE}), Store(tmp_path / "facts")
    fresh, kept = (Names(open_tree(folder), store).module("sglang.srt.shapes") for _ in range(2))
    assert fresh == kept
    for file in (tmp_path / "facts").rglob("*.json"):
        file.write_text("{")
    assert Names(open_tree(folder), store).module("sglang.srt.shapes") == fresh


@pytest.mark.parametrize(
    ("guards", "holds"),
    [
        ((), True),
        (("_is_hip",), True),
        (("not _is_hip",), False),
        (("is_cuda()",), False),
        (("_is_cuda or _is_hip",), True),
        (("_is_hip and x",), None),
        (("_is_cuda and x",), False),
        (("x", "_is_npu"), False),
        (("except ImportError",), None),
        (("TYPE_CHECKING",), False),
    ],
)
def test_condition_on_rocm(guards: tuple[str, ...], holds: bool | None) -> None:
    assert on_rocm(guards) is holds


@pytest.mark.parametrize(
    ("paths", "ends", "condition"),
    [
        ([()], [], ""),
        ([("x",)], [], "x"),
        ([("x",), ("not x",)], [], ""),
        ([("x",), ("not x", "y"), ("not x", "not y")], [], ""),
        ([("not x", "not y"), ("x",), ("y",)], [], ""),
        ([("x",)], [("not x",)], ""),
        ([("_is_hip", "x")], [], "x"),
        ([("x",), ("x", "y")], [], "x"),
        ([("x", "y")], [], "x and y"),
        ([("x",), ("y",)], [], "x or y"),
    ],
)
def test_paths_amount_to_one_condition(
    paths: list[tuple[str, ...]], ends: list[tuple[str, ...]], condition: str
) -> None:
    assert alternatives(paths, ends) == condition


def test_last_certain_definition_and_uncertain_ones_after_it_count(tmp_path: Path) -> None:
    source = "x = 1\nif _is_cuda:\n    x = 2\nx = 3\nif maybe:\n    x = 4\nif not _is_hip:\n    x = 5\n"
    module = Names(open_tree(write_tree(tmp_path, {"a.py": source})), Store(None)).module("sglang.a")
    assert module
    assert [d.line for d in effective(module.body)] == [4, 6]


def test_checker_imports_the_standard_library_and_itself_only() -> None:
    folder = Path(sys.modules["sgl_amd_mono.check.tree"].__file__ or "").parent
    for file in folder.glob("*.py"):
        for node in ast.walk(ast.parse(file.read_text())):
            match node:
                case ast.Import(names=names):
                    modules = [alias.name for alias in names]
                case ast.ImportFrom(module=str(module)):
                    modules = [module]
                case _:
                    continue
            for name in modules:
                own = name.startswith("sgl_amd_mono.check.")
                assert own or name.partition(".")[0] in sys.stdlib_module_names, (file.name, name)
