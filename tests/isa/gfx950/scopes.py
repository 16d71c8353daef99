"""What a memory instruction is, and for whom its scope bits order it.

Source: LLVM AMDGPUUsage, "Memory Model GFX942", which gfx950 shares.
"""

from __future__ import annotations

from enum import IntEnum

from .decode import Instruction


class Scope(IntEnum):
    """Who sees an access in order."""

    WAVE = 0
    WORKGROUP = 1
    AGENT = 2
    SYSTEM = 3


def scope_of(insn: Instruction) -> Scope:
    """The scope that the bits of a memory or cache instruction mean.

    A read-modify-write never takes effect in a first-level cache; its sc0 asks for the old value.
    """
    if is_counter(insn):
        return Scope.SYSTEM if insn.fields["sc1"] else Scope.AGENT
    return Scope(2 * insn.fields.get("sc1", 0) + insn.fields.get("sc0", 0))


def is_load(insn: Instruction) -> bool:
    """A load from device memory."""
    return insn.mnemonic.startswith(("global_load", "flat_load", "buffer_load"))


def is_store(insn: Instruction) -> bool:
    """A store to device memory."""
    return insn.mnemonic.startswith(("global_store", "flat_store", "buffer_store"))


def is_counter(insn: Instruction) -> bool:
    """A read-modify-write of device memory."""
    return insn.mnemonic.startswith(("global_atomic", "flat_atomic", "buffer_atomic"))


def is_acquire(insn: Instruction) -> bool:
    """A load that sees what other workgroups or ranks store."""
    return is_load(insn) and scope_of(insn) >= Scope.AGENT


def is_raise(insn: Instruction) -> bool:
    """An instruction by which others go on."""
    return is_counter(insn) or (is_store(insn) and scope_of(insn) is Scope.SYSTEM)


def is_lds_write(insn: Instruction) -> bool:
    """A write or read-modify-write of LDS."""
    exchanges = ("ds_read", "ds_bpermute", "ds_permute", "ds_swizzle", "ds_nop")
    return insn.encoding == "DS" and not insn.mnemonic.startswith(exchanges)


def is_access(insn: Instruction) -> bool:
    """An access to device memory or LDS; scalar loads, which read constants only, are none."""
    return is_load(insn) or is_store(insn) or is_counter(insn) or insn.mnemonic.startswith("ds_")
