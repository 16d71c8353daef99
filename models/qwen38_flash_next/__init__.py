"""Qwen3.8-Flash-Next."""
