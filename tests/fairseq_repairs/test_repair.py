"""Hooks around methods of fairseq's trainer."""

from fairseq.trainer import Trainer

from fairseq_reservoir.fairseq_repairs.wrap_trainer import wrap_trainer


def test_the_later_hook_is_called_first_and_the_result_comes_back(monkeypatch):
    def method(self, x, y=0):
        """Said of the method."""
        return [self, x, y]

    monkeypatch.setattr(Trainer, "method", method, raising=False)
    wrap_trainer(method=lambda original, trainer, x, y=0: [*original(trainer, x + 1, y), "first"])
    wrap_trainer(method=lambda original, trainer, *args, **kwargs: [*original(trainer, *args, **kwargs), "second"])
    trainer = Trainer.__new__(Trainer)
    assert trainer.method(1, y=5) == [trainer, 2, 5, "first", "second"]
    assert Trainer.method.__doc__ == "Said of the method."
