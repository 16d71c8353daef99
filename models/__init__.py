"""One package a model: config, weights layout, program and reference."""
