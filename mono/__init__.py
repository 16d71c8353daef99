"""Monokernel decode backend of SGLang for AMD Instinct MI355X."""

__version__ = "0.1.0"
