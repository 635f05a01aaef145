"""How hooks of ours get into fairseq's trainer."""

from functools import wraps

from fairseq.trainer import Trainer


def wrap_trainer(**hooks) -> None:
    """Lets hooks do the work of methods of fairseq's ``Trainer``.

    Args:
        hooks: method -> ``hook(original, trainer, *args, **kwargs)``, which calls ``original(trainer, ...)``.
            Of two hooks of a method, the one that came later is called first.
    """
    for name, hook in hooks.items():
        setattr(Trainer, name, _wrapped(getattr(Trainer, name), hook))


def _wrapped(original, hook):
    @wraps(original)
    def method(self, *args, **kwargs):
        return hook(original, self, *args, **kwargs)

    return method
