"""Structural detectors, one concept a module. None of them knows a model's name."""
