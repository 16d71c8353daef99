"""Devices that launch kernels: `hip` on an AMD GPU, `host` on the CPU; the tensors of a step decide which."""
