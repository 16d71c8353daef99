"""An interpreter of gfx950 machine code, in numpy, 64 lanes at a time. See docs/isa.md.

module = load(code_object)
memory = Memory()
x = memory.place(np.arange(256, dtype=np.float32))
counts = run([Launch(module, "scale", struct.pack("<Qf", x, 2.0), grid=1, block=256)], memory)
"""

from .decode import Instruction as Instruction
from .errors import BarrierError as BarrierError
from .errors import BudgetError as BudgetError
from .errors import CodeObjectError as CodeObjectError
from .errors import IsaError as IsaError
from .errors import MemoryAccessError as MemoryAccessError
from .errors import SharingError as SharingError
from .errors import TrapError as TrapError
from .errors import UnknownInstructionError as UnknownInstructionError
from .machine import Counts as Counts
from .machine import Launch as Launch
from .machine import Module as Module
from .machine import load as load
from .machine import run as run
from .memory import Memory as Memory
