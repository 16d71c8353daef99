"""Compiles the kernels of `hip/kernels` and reads what the compiler made of them."""
