"""Freezes and draws what a model's flags name, and describes the model in its checkpoints."""
