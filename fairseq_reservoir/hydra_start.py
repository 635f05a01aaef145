"""Import path of the hydra callback in users' YAML files."""

from .trainer.hydra_callback import LoadPlugin as LoadPlugin
