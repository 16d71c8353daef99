"""Contract checker: resolves every upstream name the package reads, from syntax trees alone."""
