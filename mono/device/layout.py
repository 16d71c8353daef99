"""Structs of a kernel's arguments, packed by the offsets that the compiler wrote (hip/include/mono/layout.h)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec
import numpy as np

from sgl_amd_mono.build.codeobject import read_symbol
from sgl_amd_mono.errors import BuildError, LayoutError

_SYMBOL = "mono_layout"
_NOT_A_PHASE = 0xFFFFFFFF
# one row of the table: `mono::LayoutRow`
_ROW = np.dtype(
    [
        ("record", "S24"),
        ("field", "S24"),
        ("type", "S8"),
        ("offset", "<u4"),
        ("count", "<u4"),
        ("record_bytes", "<u4"),
        ("phase", "<u4"),
    ]
)
_TYPES = {"u32": "<u4", "u64": "<u8", "i64": "<i8", "f32": "<f4", "pointer": "<u8", "line": "V128"}
# padding that has a name in C++, so that no byte of an argument struct is unaccounted for
_PADDING = "reserved"

Value = int | float | Sequence[int]


class Record(msgspec.Struct, frozen=True):
    """One C++ struct."""

    name: str
    dtype: np.dtype[np.void]
    phase: int | None
    """Number that a program entry calls the phase by; None when the struct is not a phase's arguments."""

    @property
    def size(self) -> int:
        """Bytes, trailing padding included."""
        return self.dtype.itemsize

    def pack(self, **values: Value) -> bytes:
        """The struct's bytes.

        Raises
        ------
        LayoutError
            When a field is missing, unknown, or does not fit its type.
        """
        fields = set(self.dtype.names or ()) - {_PADDING}
        if values.keys() != fields:
            raise LayoutError(
                f"{self.name}: missing {sorted(fields - values.keys())}, unknown {sorted(values.keys() - fields)}; "
                f"the kernel was built with {sorted(fields)}"
            )
        record = np.zeros((), self.dtype)
        for name, value in values.items():
            try:
                record[name] = value
            except (OverflowError, ValueError, TypeError) as error:
                raise LayoutError(f"{self.name}.{name}: {value!r} does not fit {self.dtype[name]}: {error}") from error
        return record.tobytes()

    def unpack(self, data: bytes) -> dict[str, int]:
        """The fields of a struct of integers."""
        record = np.frombuffer(data, self.dtype, count=1)[0]
        return {name: int(record[name]) for name in self.dtype.names or ()}


def read_layout(path: Path) -> Mapping[str, Record]:
    """Every struct that the code object or shared object at `path` describes, by name.

    Raises
    ------
    BuildError
        When the file has no layout table or one of another format.
    """
    table = read_symbol(path, _SYMBOL)
    if len(table) % _ROW.itemsize:
        raise BuildError(
            f"{path}: the layout table has {len(table)} bytes, rows have {_ROW.itemsize}. Rebuild the kernels."
        )
    rows = np.frombuffer(table, _ROW)
    records = {}
    for name in dict.fromkeys(rows["record"].tolist()):
        own = rows[rows["record"] == name]
        try:
            dtype = np.dtype(
                {
                    "names": [field.decode() for field in own["field"]],
                    "formats": [_format(row["type"].decode(), int(row["count"])) for row in own],
                    "offsets": own["offset"].tolist(),
                    "itemsize": int(own["record_bytes"][0]),
                }
            )
        except ValueError as error:
            raise BuildError(
                f"{path}: the fields of {name.decode()} do not fit in its {own['record_bytes'][0]} bytes: {error}. "
                "Rebuild the kernels."
            ) from error
        phase = int(own["phase"][0])
        records[name.decode()] = Record(name.decode(), dtype, None if phase == _NOT_A_PHASE else phase)
    return records


def _format(type_name: str, count: int) -> str | tuple[str, int]:
    if type_name not in _TYPES:
        raise BuildError(
            f"the layout table names the type {type_name!r}; known: {sorted(_TYPES)}. Rebuild the kernels."
        )
    return _TYPES[type_name] if count == 1 else (_TYPES[type_name], count)
