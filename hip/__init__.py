"""Kernel sources: `include/mono` (portable layer), `phases`, `kernels` (entry points), `host` (executor)."""
