"""Freezing: models built with frozen tensors, freeze schedules and the optimizer ``freeze_skip``."""
