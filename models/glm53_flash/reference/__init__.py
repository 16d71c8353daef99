"""The decode step of GLM-5.3-Flash in plain torch: one function a phase, named as the phase; float64 arithmetic."""
