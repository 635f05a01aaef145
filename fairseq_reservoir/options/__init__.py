"""The flags of the models: their dataclasses, presets and checks."""
