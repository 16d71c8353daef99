"""Runs launches: loads modules, starts waves, and interleaves all waves of all launches by a seeded scheduler."""

from __future__ import annotations

import itertools
import random
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field

import numpy as np

from . import compare, control, convert, global_memory, lanes, lds, matrix, scalar, vector
from .code_object import CodeObject, Kernel, read_code_object
from .decode import MAX_INSTRUCTION_BYTES, WORD_BYTES, Instruction, decode
from .errors import BudgetError, CodeObjectError, IsaError, MemoryAccessError, UnknownInstructionError
from .lanes import Step
from .memory import Memory
from .sharing import Sharing
from .wave import LANE, LANES, MODE_AT_START, Status, Wave, Workgroup

_BINDERS: tuple[Callable[[Instruction], Step | None], ...] = (
    scalar.bind,
    control.bind,
    vector.bind,
    compare.bind,
    convert.bind,
    matrix.bind,
    lanes.bind,
    global_memory.bind,
    lds.bind,
)

# the image of each module lies at its own address, far from every buffer
_IMAGE_BASES = itertools.count(0x1000_0000_0000, 1 << 32)
_LARGEST_LDS = 160 * 1024
_LONGEST_TURN = 64
# words of user SGPRs that a kernel may ask for, by property bit: private segment buffer, dispatch packet, queue,
# kernarg pointer, dispatch id, flat scratch, private segment size. Only the kernarg pointer is given; the others stay
# poison, and their use faults.
_USER_SGPR_WORDS = (4, 2, 2, 2, 2, 2, 1)
_KERNARG_PROPERTY = 3
# round to nearest and keep denormals, of every width
_FLOAT_MODE = MODE_AT_START & 0xFF


@dataclass(slots=True)
class _Entry:
    """A decoded instruction ready to run."""

    insn: Instruction
    step: Step
    following: int
    index: int


class Module:
    """A loaded code object; instructions are decoded and bound when they are first reached."""

    def __init__(self, code: CodeObject) -> None:
        self.image, self.kernels = code.image, code.kernels
        self.base = next(_IMAGE_BASES)
        self.entries: list[_Entry] = []
        self._by_address: dict[int, _Entry] = {}

    def entry(self, address: int) -> _Entry:
        """The instruction at `address`, bound.

        Raises
        ------
        UnknownInstructionError
            It cannot be decoded, or its semantics are not in the tables.
        """
        found = self._by_address.get(address)
        if found is None:
            insn = self._decode(address)
            found = _Entry(insn, bind(insn), address + insn.size, len(self.entries))
            self._by_address[address] = found
            self.entries.append(found)
        return found

    def instructions(self, kernel: str) -> list[Instruction]:
        """The disassembly of a kernel, in address order."""
        found, code = [], self.kernels[kernel]
        address = code.start
        while address < code.start + code.size:
            found.append(self._decode(address))
            address += found[-1].size
        return found

    def unknown(self, kernel: str) -> list[str]:
        """What of a kernel's disassembly is not in the tables: one message an instruction."""
        messages = []
        for insn in self.instructions(kernel):
            try:
                bind(insn)
            except UnknownInstructionError as error:
                messages.append(str(error))
        return messages

    def _decode(self, address: int) -> Instruction:
        return decode(self.image[address : address + MAX_INSTRUCTION_BYTES].tobytes(), address)


def bind(insn: Instruction) -> Step:
    """What executing the instruction does to a wave.

    Raises
    ------
    UnknownInstructionError
        No table has it.
    """
    for binder in _BINDERS:
        step = binder(insn)
        if step is not None:
            return step
    raise insn.unknown("unknown instruction")


def load(code_object: bytes) -> Module:
    """Load a raw gfx950 code object (ELF).

    Raises
    ------
    CodeObjectError
        The bytes are no such file.
    """
    return Module(read_code_object(code_object))


@dataclass(frozen=True)
class Launch:
    """One kernel launch; several in one run are ranks that run at the same time.

    Attributes
    ----------
    kernarg : bytes
        The whole kernel argument segment, hidden arguments included.
    grid : int or tuple
        Workgroups along x (and y, z).
    block : int
        Threads of a workgroup, along x.
    dynamic_lds : int
        Bytes of LDS beyond what the code object declares.
    """

    module: Module
    kernel: str
    kernarg: bytes
    grid: int | tuple[int, int, int]
    block: int
    dynamic_lds: int = 0


@dataclass
class Traffic:
    """Bytes moved between lanes and device memory."""

    loaded: int = 0
    stored: int = 0


@dataclass
class Clock:
    """Executed wave instructions of the whole run."""

    now: int = 0


@dataclass
class Counts:
    """What a run did.

    Attributes
    ----------
    instructions : Counter
        Executed wave instructions by mnemonic.
    scopes : Counter
        Executed vector memory and cache instructions by (mnemonic, scope bits), e.g. ``("buffer_inv", "sc1")``.
    bytes_loaded, bytes_stored : int
        Traffic with device memory, atomics in both; LDS is not counted.
    """

    instructions: Counter[str] = field(default_factory=Counter)
    scopes: Counter[tuple[str, str]] = field(default_factory=Counter)
    bytes_loaded: int = 0
    bytes_stored: int = 0

    @property
    def total(self) -> int:
        """Executed wave instructions."""
        return self.instructions.total()


class Rank:
    """A launch while it runs."""

    def __init__(self, number: int, launch: Launch, memory: Memory, clock: Clock) -> None:
        if launch.kernel not in launch.module.kernels:
            raise CodeObjectError(f"no kernel {launch.kernel}; the code object has {sorted(launch.module.kernels)}")
        self.number, self.module, self.memory, self.clock = number, launch.module, memory, clock
        self.kernel: Kernel = launch.module.kernels[launch.kernel]
        self.launch = launch
        self.traffic = Traffic()
        self.hits: list[int] = []
        if self.kernel.descriptor.float_mode != _FLOAT_MODE:
            raise CodeObjectError(
                f"{launch.kernel} starts with float mode {self.kernel.descriptor.float_mode:#x}, not {_FLOAT_MODE:#x}"
            )
        needed = self.kernel.descriptor.kernarg_bytes
        if len(launch.kernarg) != needed:
            raise CodeObjectError(f"{launch.kernel} takes {needed} bytes of arguments, not {len(launch.kernarg)}")
        self.kernarg = memory.place(
            np.frombuffer(launch.kernarg or bytes(4), np.uint8), "kernel arguments", writable=False
        )

    def start(self) -> list[Wave]:
        """The waves of all workgroups, at their entry."""
        grid = self.launch.grid if isinstance(self.launch.grid, tuple) else (self.launch.grid, 1, 1)
        lds_bytes = self.kernel.descriptor.lds_bytes + self.launch.dynamic_lds
        if lds_bytes > _LARGEST_LDS:
            raise CodeObjectError(f"{self.kernel.name} with {lds_bytes} bytes of LDS; a workgroup has {_LARGEST_LDS}")
        waves = []
        for number, (z, y, x) in enumerate(itertools.product(*map(range, reversed(grid)))):
            group = Workgroup((x, y, z), number, lds_bytes, self)
            group.waves = [self._wave(group, i) for i in range(-(-self.launch.block // LANES))]
            waves += group.waves
        return waves

    def _wave(self, group: Workgroup, number: int) -> Wave:
        descriptor = self.kernel.descriptor
        first = number * LANES
        wave = Wave(group, number, min(LANES, self.launch.block - first), descriptor.entry)
        register = 0
        for bit, words in enumerate(_USER_SGPR_WORDS):
            if descriptor.properties >> bit & 1:
                if bit == _KERNARG_PROPERTY:
                    wave.set_scalar(register, self.kernarg, words)
                register += words
        preload = np.frombuffer(
            self.launch.kernarg.ljust(-(-len(self.launch.kernarg) // WORD_BYTES) * WORD_BYTES, b"\0"), np.uint32
        )
        for word in range(descriptor.preload_words):
            wave.set_scalar(register + word, int(preload[descriptor.preload_offset + word]))
        register = descriptor.user_sgprs
        for axis, enabled in enumerate(descriptor.workgroup_id_axes):
            if enabled:
                wave.set_scalar(register, group.index[axis])
                register += 1
        # one register holds the three work-item ids, ten bits each; y and z are 0 in a one-dimensional block
        wave.v["u4"][0] = first + LANE
        return wave


def run(
    launches: Sequence[Launch],
    memory: Memory,
    seed: int = 0,
    max_instructions: int = 10_000_000,
    *,
    checks_sharing: bool = False,
) -> Counts:
    """Execute the launches at the same time until all waves have ended.

    In each turn a wave chosen by `seed` executes up to 64 instructions, fewer if it sleeps, waits or ends. With
    `checks_sharing`, every access to device memory is judged by `Sharing` first.

    Raises
    ------
    UnknownInstructionError, MemoryAccessError, SharingError, TrapError, CodeObjectError
        With the instruction, its address, and the wave (for a memory fault also the lane) that met it.
    BarrierError
        A wave left its workgroup before a barrier of the others.
    BudgetError
        More than `max_instructions` wave instructions; the message says where every wave stands.
    """
    clock = Clock()
    with ExitStack() as placed, np.errstate(all="ignore"):
        for module in {id(launch.module): launch.module for launch in launches}.values():
            placed.callback(memory.remove, memory.add(module.base, module.image, "code", writable=False))
        ranks = []
        for number, launch in enumerate(launches):
            ranks.append(Rank(number, launch, memory, clock))
            placed.callback(memory.remove, ranks[-1].kernarg)
        waves = [wave for rank in ranks for wave in rank.start()]
        sharing = Sharing() if checks_sharing else None
        _schedule(waves, clock, random.Random(seed), max_instructions, sharing)
    return _counts(ranks)


def _schedule(
    waves: list[Wave], clock: Clock, rng: random.Random, max_instructions: int, sharing: Sharing | None
) -> None:
    runnable = list(waves)
    while runnable:
        position = rng.randrange(len(runnable))
        wave = runnable[position]
        _turn(wave, clock, 1 + rng.randrange(_LONGEST_TURN), sharing)
        if wave.status is Status.YIELDED:
            wave.status = Status.RUNNING
        elif wave.status is not Status.RUNNING:
            runnable[position] = runnable[-1]
            runnable.pop()
            runnable += wave.workgroup.release_barrier()
        if clock.now > max_instructions:
            places = "\n".join(
                f"  {w.where()} before {w.pc:#x}, {w.status.name}" for w in waves if w.status is not Status.ENDED
            )
            raise BudgetError(f"{max_instructions} instructions executed and not all waves have ended:\n{places}")


def _turn(wave: Wave, clock: Clock, length: int, sharing: Sharing | None) -> None:
    """Execute up to `length` instructions of a wave."""
    rank = wave.workgroup.rank
    module, hits = rank.module, rank.hits
    entries = module._by_address
    running = Status.RUNNING
    for _ in range(length):
        entry = entries.get(wave.pc)
        if entry is None:
            entry = _bind_at(wave, module)
        if entry.index >= len(hits):
            hits.extend([0] * (entry.index + 1 - len(hits)))
        hits[entry.index] += 1
        clock.now += 1
        wave.pc = entry.following
        try:
            if sharing is not None:
                sharing.check(wave, entry.insn)
            entry.step(wave)
        except IsaError as error:
            raise _located(error, entry.insn, wave) from error
        if wave.status is not running:
            return


def _bind_at(wave: Wave, module: Module) -> _Entry:
    try:
        return module.entry(wave.pc)
    except UnknownInstructionError as error:
        raise UnknownInstructionError(f"{error} ({wave.where()})") from error


def _located(error: IsaError, insn: Instruction, wave: Wave) -> IsaError:
    where = f"{insn.describe()} ({wave.where()}"
    if isinstance(error, MemoryAccessError) and error.position is not None:
        return MemoryAccessError(f"{where}, lane {wave.lanes[error.position]}): {error}", error.position)
    return type(error)(f"{where}): {error}")


def _counts(ranks: list[Rank]) -> Counts:
    counts = Counts()
    for rank in ranks:
        for entry, hits in zip(rank.module.entries, rank.hits, strict=False):
            if hits:
                counts.instructions[entry.insn.mnemonic] += hits
                if "sc1" in entry.insn.fields:
                    counts.scopes[entry.insn.mnemonic, entry.insn.scope] += hits
        counts.bytes_loaded += rank.traffic.loaded
        counts.bytes_stored += rank.traffic.stored
    return counts
