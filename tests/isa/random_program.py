"""Random C++ functions whose result is defined, bit for bit, on any IEEE machine.

The same text is compiled for gfx950 and for this machine. Shifts are masked, divisors made non-zero, arithmetic that
may overflow is unsigned, floats are brought into range before they become integers, and a NaN is stored as one fixed
pattern. Statements are single operations, so that half precision rounds after each on both machines.
"""

from __future__ import annotations

import random

PRELUDE = """
using u8 = unsigned char; using u16 = unsigned short; using u32 = unsigned; using u64 = unsigned long;
using i16 = short; using i32 = int; using i64 = long; using f16 = _Float16; using f32 = float; using f64 = double;
using i16x2 = i16 __attribute__((ext_vector_type(2)));
using u16x2 = u16 __attribute__((ext_vector_type(2)));
using f16x2 = f16 __attribute__((ext_vector_type(2)));
using f32x2 = f32 __attribute__((ext_vector_type(2)));
template <class T, class F> FN T bits(F x) { return __builtin_bit_cast(T, x); }
FN u64 word(u32 x) { return x; }
FN u64 word(i32 x) { return static_cast<u32>(x); }
FN u64 word(u16 x) { return x; }
FN u64 word(i16 x) { return static_cast<u16>(x); }
FN u64 word(u64 x) { return x; }
FN u64 word(i64 x) { return static_cast<u64>(x); }
FN u64 word(f16 x) { return x != x ? 0x7e00 : bits<u16>(x); }
FN u64 word(f32 x) { return x != x ? 0x7fc00000 : bits<u32>(x); }
FN u64 word(f64 x) { return x != x ? 0x7ff8000000000000 : bits<u64>(x); }
FN i32 whole(f32 x) { return x > -2e9f && x < 2e9f ? static_cast<i32>(x) : 7; }
FN u32 whole_unsigned(f32 x) { return x >= 0.0f && x < 4e9f ? static_cast<u32>(x) : 9; }
FN u32 whole_unsigned(f64 x) { return x >= 0.0 && x < 4e9 ? static_cast<u32>(x) : 9; }
FN i32 whole(f64 x) { return x > -2e9 && x < 2e9 ? static_cast<i32>(x) : 7; }
"""
FLOATS = ("f16", "f32", "f64")
# operations by result type: a template over operands of the types that follow it
_OPERATIONS: dict[str, list[tuple[str, ...]]] = {
    "u32": [
        ("~({} & {})", "u32", "u32"),
        ("~({} | {})", "u32", "u32"),
        ("~({} ^ {})", "u32", "u32"),
        ("{} & ~{}", "u32", "u32"),
        ("{} | ~{}", "u32", "u32"),
        ("{} | 1u << ({} & 31)", "u32", "u32"),
        ("{} & ~(1u << ({} & 31))", "u32", "u32"),
        ("(1u << ({} & 31)) - 1", "u32"),
        ("((1u << ({} & 31)) - 1) << ({} & 31)", "u32", "u32"),
        ("__builtin_ctz(~{} | 0x80000000u)", "u32"),
        ("{} >> ({} & 31) & ((1u << ({} & 31)) - 1)", "u32", "u32", "u32"),
        ("__builtin_elementwise_max(__builtin_elementwise_max({}, {}), {})", "u32", "u32", "u32"),
        ("__builtin_elementwise_min(__builtin_elementwise_min({}, {}), {})", "u32", "u32", "u32"),
        ("__builtin_elementwise_min(__builtin_elementwise_max({}, 100u), 70000u)", "u32"),
        ("__builtin_elementwise_max({}, {})", "u32", "u32"),
        ("static_cast<u64>({} & 0xffffff) * ({} & 0xffffff) >> 32", "u32", "u32"),
        ("static_cast<u32>(static_cast<u64>({}) << 32 >> 8 | {} >> 8)", "u32", "u32"),
        ("({} << 24 | {} >> 8)", "u32", "u32"),
        ("{0} > {1} ? {0} - {1} + {2} : {1} - {0} + {2}", "u32", "u32", "u32"),
        (
            "({0} & 0xff) * ({1} & 0xff) + ({0} >> 8 & 0xff) * ({1} >> 8 & 0xff)"
            " + ({0} >> 16 & 0xff) * ({1} >> 16 & 0xff) + ({0} >> 24) * ({1} >> 24) + {2}",
            "u32",
            "u32",
            "u32",
        ),
        ("bits<u32>(static_cast<u16x2>(bits<u16x2>({}) - bits<u16x2>({})))", "u32", "u32"),
        ("bits<u32>(static_cast<u16x2>(bits<u16x2>({}) * bits<u16x2>({}) + bits<u16x2>({})))", "u32", "u32", "u32"),
        ("bits<u32>(static_cast<u16x2>(bits<u16x2>({}) << (bits<u16x2>({}) & static_cast<u16>(15))))", "u32", "u32"),
        ("bits<u32>(static_cast<i16x2>(bits<i16x2>({}) >> static_cast<i16>(5)))", "u32"),
        ("bits<u32>(__builtin_elementwise_max(bits<u16x2>({}), bits<u16x2>({})))", "u32", "u32"),
        ("bits<u32>(__builtin_elementwise_min(bits<u16x2>({}), bits<u16x2>({})))", "u32", "u32"),
        ("bits<u32>(__builtin_elementwise_max(bits<i16x2>({}), bits<i16x2>({})))", "u32", "u32"),
        ("bits<u32>(__builtin_elementwise_min(bits<i16x2>({}), bits<i16x2>({})))", "u32", "u32"),
        ("{} & 0xffff | {} << 16", "u32", "u32"),
        ("{} & 0xffff | {} & 0xffff0000u", "u32", "u32"),
        ("{} >> 16 | {} & 0xffff0000u", "u32", "u32"),
        ("static_cast<u32>({})", "u16"),
        ("__builtin_bitreverse64({}) >> 32", "u64"),
        ("whole_unsigned({})", "f64"),
        *((f"{{}} {op} {{}}", "u32", "u32") for op in "+-*&|^"),
        ("{} << ({} & 31)", "u32", "u32"),
        ("{} >> ({} & 31)", "u32", "u32"),
        # the bit keeps LLVM 22 from its 24-bit division, which is off by one for x / (x + 1), x > 2^23, with a
        # reciprocal of 1 ulp
        ("({} | 0x80000000u) / ({} | 1)", "u32", "u32"),
        ("({} | 0x80000000u) % ({} | 1)", "u32", "u32"),
        ("~{}", "u32"),
        ("__builtin_clz({} | 1)", "u32"),
        ("__builtin_ctz({} | 0x80000000u)", "u32"),
        ("__builtin_popcount({})", "u32"),
        ("__builtin_bswap32({})", "u32"),
        ("__builtin_bitreverse32({})", "u32"),
        ("__builtin_rotateleft32({}, {})", "u32", "u32"),
        ("__builtin_elementwise_add_sat({}, {})", "u32", "u32"),
        ("__builtin_elementwise_sub_sat({}, {})", "u32", "u32"),
        ("static_cast<u64>({}) * {} >> 32", "u32", "u32"),
        ("({} >> 8 & 0xff) * ({} & 0xffffff)", "u32", "u32"),
        ("({} & 0xffffff) * ({} & 0xffffff) + {}", "u32", "u32", "u32"),
        ("{} < {} ? {} : {}", "u32", "u32", "u32", "u32"),
        ("{} < {} ? {} : {}", "f32", "f32", "u32", "u32"),
        ("{} >= {} ? {} : {}", "f64", "f64", "u32", "u32"),
        ("!({} <= {}) ? {} : {}", "f16", "f16", "u32", "u32"),
        ("{} > {} ? {} : {}", "i64", "i64", "u32", "u32"),
        ("({0} & {1}) | (~{0} & {2})", "u32", "u32", "u32"),
        ("bits<u32>(static_cast<u16x2>(bits<u16x2>({}) + bits<u16x2>({})))", "u32", "u32"),
        ("bits<u32>(static_cast<u16x2>(bits<u16x2>({}) * bits<u16x2>({})))", "u32", "u32"),
        ("bits<u32>(static_cast<u16x2>(bits<u16x2>({}) >> static_cast<u16>(3)))", "u32"),
        ("static_cast<u8>({} >> 16) | static_cast<u16>({}) << 8", "u32", "u32"),
        ("static_cast<u16>({} >> 16) + static_cast<u16>({})", "u32", "u32"),
        ("static_cast<u32>({})", "u64"),
        ("static_cast<u32>({} >> 32)", "u64"),
        ("whole_unsigned({})", "f32"),
        ("static_cast<u32>(word({}))", "f32"),
        ("static_cast<u32>(word({}))", "f16"),
        ("__builtin_isinf({}) + 2 * __builtin_isnormal({})", "f32", "f32"),
    ],
    "i32": [
        ("static_cast<i32>({})", "i16"),
        ("__builtin_elementwise_max(__builtin_elementwise_max({}, {}), {})", "i32", "i32", "i32"),
        ("__builtin_elementwise_min(__builtin_elementwise_min({}, {}), {})", "i32", "i32", "i32"),
        ("__builtin_elementwise_min(__builtin_elementwise_max({}, -5000), 7000)", "i32"),
        ("{} < 0 ? ~{} : __builtin_clz({} | 1)", "i32", "i32", "u32"),
        ("__builtin_elementwise_add_sat({}, {})", "i32", "i32"),
        ("__builtin_elementwise_sub_sat({}, {})", "i32", "i32"),
        ("static_cast<i32>(static_cast<u32>({}) << 16) >> 20", "i32"),
        ("static_cast<i32>({})", "u32"),
        ("{} >> ({} & 31)", "i32", "u32"),
        ("static_cast<signed char>({})", "i32"),
        ("static_cast<i16>({} >> 16)", "i32"),
        ("{} < {} ? {} : {}", "i32", "i32", "i32", "i32"),
        ("__builtin_elementwise_max({}, {})", "i32", "i32"),
        ("__builtin_elementwise_min({}, {})", "i32", "i32"),
        ("static_cast<i64>({}) * {} >> 32", "i32", "i32"),
        ("{} / (({} & 0xffff) + 1)", "i32", "u32"),
        ("{} % static_cast<i32>(({} & 0xfff) + 1)", "i32", "u32"),
        ("(({} << 8) >> 8) * static_cast<i64>({} & 0xff) >> 4", "i32", "i32"),
        ("whole({})", "f32"),
        ("whole({})", "f64"),
    ],
    "u64": [
        ("~({} ^ {})", "u64", "u64"),
        ("~({} & {})", "u64", "u64"),
        ("~({} | {})", "u64", "u64"),
        ("~{}", "u64"),
        ("{} & ~{}", "u64", "u64"),
        ("{} | 1ul << ({} & 63)", "u64", "u32"),
        ("(1ul << ({} & 63)) - 1", "u32"),
        ("{} >> ({} & 63) & 0x3fffffffff", "u64", "u32"),
        *((f"{{}} {op} {{}}", "u64", "u64") for op in "+-*&|^"),
        ("{} << ({} & 63)", "u64", "u32"),
        ("{} >> ({} & 63)", "u64", "u32"),
        ("{} / ({} | 1)", "u64", "u64"),
        ("static_cast<u64>({}) * {} + {}", "u32", "u32", "u64"),
        ("{} < {} ? {} : {}", "u64", "u64", "u64", "u64"),
        ("({} << 3) + {}", "u64", "u64"),
        ("static_cast<u64>({}) << 32 | {}", "u32", "u32"),
        ("__builtin_popcountll({}) + __builtin_clzll({} | 1)", "u64", "u64"),
        ("word({})", "f64"),
    ],
    "i64": [
        ("static_cast<i64>({})", "u64"),
        ("{} >> ({} & 63)", "i64", "u32"),
        ("static_cast<i64>({}) * {}", "i32", "i32"),
        ("{} == {} ? {} : {}", "i64", "i64", "i64", "i64"),
    ],
    "u16": [
        *((f"static_cast<u16>({{}} {op} {{}})", "u16", "u16") for op in "+-&|^"),
        ("static_cast<u16>(static_cast<u32>({}) * {})", "u16", "u16"),
        ("static_cast<u16>(static_cast<u32>({}) * {} + {})", "u16", "u16", "u16"),
        ("static_cast<u16>({} << ({} & 15))", "u16", "u16"),
        ("static_cast<u16>({} >> ({} & 15))", "u16", "u16"),
        ("__builtin_elementwise_max({}, {})", "u16", "u16"),
        ("__builtin_elementwise_min({}, {})", "u16", "u16"),
        ("__builtin_elementwise_add_sat({}, {})", "u16", "u16"),
        ("{} < {} ? {} : {}", "u16", "u16", "u16", "u16"),
        ("static_cast<u16>({} >> 16)", "u32"),
        ("static_cast<u16>({})", "i16"),
    ],
    "i16": [
        ("static_cast<i16>({})", "u16"),
        ("static_cast<i16>({} >> ({} & 15))", "i16", "u16"),
        ("__builtin_elementwise_max({}, {})", "i16", "i16"),
        ("__builtin_elementwise_min({}, {})", "i16", "i16"),
        ("{} < {} ? {} : {}", "i16", "i16", "i16", "i16"),
    ],
    "f16": [
        ("__builtin_elementwise_floor({})", "f16"),
        ("__builtin_elementwise_ceil({})", "f16"),
        ("__builtin_elementwise_trunc({})", "f16"),
        ("__builtin_elementwise_rint({})", "f16"),
        ("__builtin_elementwise_max({}, {}) + static_cast<f16>(0)", "f16", "f16"),
        ("__builtin_elementwise_min({}, {}) + static_cast<f16>(0)", "f16", "f16"),
        ("static_cast<f16>({})", "i16"),
        ("static_cast<f16>({})", "u16"),
        ("bits<f16x2>(bits<u32>(static_cast<f16x2>(bits<f16x2>({}) * bits<f16x2>({}))))[0]", "u32", "u32"),
        *((f"{{}} {op} {{}}", "f16", "f16") for op in "+-*"),
        ("-{}", "f16"),
        ("__builtin_elementwise_abs({})", "f16"),
        # the mask hides a product from LLVM 22, which would fold it and the conversion into v_fma_mixlo_f16 with the
        # addend +0, and so lose the sign of a zero
        ("static_cast<f16>(bits<f32>(bits<u32>({}) & 0xfffffff0u))", "f32"),
        ("static_cast<f16>(static_cast<i32>({} & 0x7ff))", "u32"),
        ("bits<f16x2>(bits<u32>(static_cast<f16x2>(bits<f16x2>({}) + bits<f16x2>({}))))[1]", "u32", "u32"),
        ("bits<f16>(static_cast<u16>({}))", "u32"),
        ("{} < {} ? {} : {}", "f16", "f16", "f16", "f16"),
    ],
    "f32": [
        ("__builtin_fmaxf({}, {}) + 0.0f", "f32", "f32"),
        ("__builtin_fminf({}, {}) + 0.0f", "f32", "f32"),
        ("__builtin_fmaxf(__builtin_fmaxf({}, {}), {}) + 0.0f", "f32", "f32", "f32"),
        ("__builtin_fminf(__builtin_fminf({}, {}), {}) + 0.0f", "f32", "f32", "f32"),
        ("__builtin_fminf(__builtin_fmaxf({}, 0.5f), 3.0f)", "f32"),
        ("{} * 2.0f", "f32"),
        ("__builtin_fmaf({}, {}, 1234.5f)", "f32", "f32"),
        ("__builtin_fmaf({}, 17.25f, {})", "f32", "f32"),
        ("static_cast<f32>({} >> 8 & 0xff)", "u32"),
        ("static_cast<f32>({} >> 16 & 0xff)", "u32"),
        ("static_cast<f32>({})", "i16"),
        *((f"{{}} {op} {{}}", "f32", "f32") for op in "+-*/"),
        ("__builtin_fmaf({}, {}, {})", "f32", "f32", "f32"),
        ("__builtin_fmaf({}, -{}, __builtin_fabsf({}))", "f32", "f32", "f32"),
        ("-{}", "f32"),
        ("__builtin_fabsf({})", "f32"),
        ("__builtin_sqrtf(__builtin_fabsf({}))", "f32"),
        ("__builtin_floorf({})", "f32"),
        ("__builtin_ceilf({})", "f32"),
        ("__builtin_truncf({})", "f32"),
        ("__builtin_rintf({})", "f32"),
        ("__builtin_copysignf({}, bits<f32>({} << 7))", "f32", "u32"),
        ("{} < {} ? {} : {}", "f32", "f32", "f32", "f32"),
        ("static_cast<f32>({})", "f16"),
        ("static_cast<f32>({})", "f64"),
        ("static_cast<f32>({})", "i32"),
        ("static_cast<f32>({})", "u32"),
        ("static_cast<f32>({} & 0xff)", "u32"),
        ("static_cast<f32>({} >> 24)", "u32"),
        ("static_cast<f32>({})", "u64"),
        ("bits<f32>({})", "u32"),
        ("static_cast<f32x2>(f32x2{{{}, {}}} * f32x2{{{}, {}}})[0]", "f32", "f32", "f32", "f32"),
        ("static_cast<f32x2>(f32x2{{{}, {}}} + f32x2{{{}, {}}})[1]", "f32", "f32", "f32", "f32"),
    ],
    "f64": [
        ("__builtin_ceil({})", "f64"),
        ("__builtin_trunc({})", "f64"),
        ("__builtin_fmax({}, {}) + 0.0", "f64", "f64"),
        ("__builtin_fmin({}, {}) + 0.0", "f64", "f64"),
        ("static_cast<f64>({})", "u64"),
        *((f"{{}} {op} {{}}", "f64", "f64") for op in "+-*/"),
        ("__builtin_fma({}, {}, {})", "f64", "f64", "f64"),
        ("-{}", "f64"),
        ("__builtin_fabs({})", "f64"),
        ("__builtin_sqrt(__builtin_fabs({}))", "f64"),
        ("__builtin_floor({})", "f64"),
        ("__builtin_rint({})", "f64"),
        ("{} < {} ? {} : {}", "f64", "f64", "f64", "f64"),
        ("static_cast<f64>({})", "f32"),
        ("static_cast<f64>({})", "i32"),
        ("static_cast<f64>({})", "u32"),
        ("bits<f64>({})", "u64"),
    ],
}
INPUTS = 6


class Writer:
    """Writes the body of one function."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.lines: list[str] = []
        # what a lane was given, and what the whole wave was given: the second kind keeps the scalar unit busy
        self.values: dict[str, list[str]] = {kind: [] for kind in _OPERATIONS}
        for i in range(INPUTS):
            self._define("u32", f"in[{i}]")
            self._define("u32", f"uniform{i}")

    def function(self, name: str, statements: int) -> str:
        """``void name(const u32* in, u64* out, u32 uniform0, ...)``, storing every variable in the order of `lines`."""
        for kind, source in _CONVERSIONS:
            for value in list(self.values[source])[:8]:
                self._define(kind, _CONVERSIONS[kind, source].format(value))
        for _ in range(statements):
            self._statement()
        results = [f"out[{i}] = word({line.split()[1].rstrip(';')});" for i, line in enumerate(self.lines)]
        uniforms = ", ".join(f"u32 uniform{i}" for i in range(INPUTS))
        body = "\n  ".join([*self.lines, *results])
        return f"FN void {name}(const u32* in, u64* out, {uniforms}) {{\n  {body}\n}}\n"

    def _statement(self) -> None:
        shape = self.rng.random()
        if shape < 0.08:
            self._branch()
        elif shape < 0.12:
            self._loop()
        else:
            kind, text = self._expression()
            self._define(kind, text)

    def _expression(self, kind: str = "") -> tuple[str, str]:
        kind = kind or self.rng.choice(list(_OPERATIONS))
        template, *operands = self.rng.choice(_OPERATIONS[kind])
        return kind, template.format(*[self._pick(operand) for operand in operands])

    def _pick(self, kind: str) -> str:
        values = self.values[kind]
        # recent values mostly, so that long chains form
        return self.rng.choice(values[-6:] if self.rng.random() < 0.7 else values)

    def _define(self, kind: str, text: str) -> None:
        name = f"{kind}_{len(self.values[kind])}"
        self.lines.append(f"{kind} {name} = {text};")
        self.values[kind].append(name)

    def _branch(self) -> None:
        """A variable that the two sides of a lane-dependent branch set differently."""
        kind, first = self._expression()
        second = self._expression(kind)[1]
        condition = f"{self._pick('u32')} {self.rng.choice(['<', '>', '=='])} {self._pick('u32')}"
        name = f"{kind}_{len(self.values[kind])}"
        self.lines.append(f"{kind} {name}; if ({condition}) {{ {name} = {first}; }} else {{ {name} = {second}; }}")
        self.values[kind].append(name)

    def _loop(self) -> None:
        """A loop whose number of turns depends on the lane."""
        start, step, count = self._pick("u32"), self._pick("u32"), self._pick("u32")
        name = f"u32_{len(self.values['u32'])}"
        operation = self.rng.choice(["+= {s}", "^= {n} << 5 ^ {s}", "= {n} * 1664525u + {s}"]).format(n=name, s=step)
        self.lines.append(f"u32 {name} = {start}; for (u32 i = 0; i < ({count} & 7); ++i) {{ {name} {operation}; }}")
        self.values["u32"].append(name)


_CONVERSIONS = {
    ("i32", "u32"): "static_cast<i32>({})",
    ("u16", "u32"): "static_cast<u16>({})",
    ("i16", "u16"): "static_cast<i16>({})",
    ("u64", "u32"): "static_cast<u64>({0}) * 0x100000001 ^ {0}",
    ("i64", "u64"): "static_cast<i64>({})",
    ("f32", "u32"): "bits<f32>({})",
    ("f64", "f32"): "static_cast<f64>({})",
    ("f16", "f32"): "static_cast<f16>({})",
}
