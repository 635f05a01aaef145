"""Named repairs, and ``wrap``, the only way to change a function of fairseq."""

import functools
import operator
import types

import pytest
from fairseq.trainer import Trainer

from fairseq_reservoir.errors import InputError
from fairseq_reservoir.fairseq_repairs import repair as module
from fairseq_reservoir.fairseq_repairs.repair import WITHOUT, apply, hooks_of, repair, wrap


def first(original, trainer, x, y=0):
    return [*original(trainer, x + 1, y), "first"]


def second(original, *args, **kwargs):
    return [*original(*args, **kwargs), "second"]


def test_the_later_hook_is_called_first(monkeypatch):
    def method(self, x, y=0):
        """Return the arguments."""
        return [self, x, y]

    monkeypatch.setattr(Trainer, "method", method, raising=False)
    wrap(Trainer, "method", first)
    wrap(Trainer, "method", second)
    trainer = Trainer.__new__(Trainer)
    assert trainer.method(1, y=5) == [trainer, 2, 5, "first", "second"]
    assert Trainer.method.__doc__ == "Return the arguments."
    assert hooks_of(Trainer.method) == [second, first] and hooks_of(method) == []


class Owner:
    @classmethod
    def class_method(cls, x):
        return [cls, x]

    @staticmethod
    def static(x):
        return [x]

    def inherited(self):
        return [self]


@pytest.mark.parametrize("name, result", [("class_method", [Owner, 1]), ("static", [1])])
def test_a_hook_is_added_once_to_a_method_of_any_kind(monkeypatch, name, result):
    monkeypatch.setattr(Owner, name, vars(Owner)[name])
    for _ in range(2):
        wrap(Owner, name, second)
    assert getattr(Owner, name)(1) == getattr(Owner(), name)(1) == [*result, "second"]


def test_a_hook_of_a_subclass_leaves_the_base_class_unchanged():
    class Child(Owner):
        pass

    wrap(Child, "inherited", second)
    child, owner = Child(), Owner()
    assert child.inherited() == [child, "second"] and owner.inherited() == [owner]


class Shell:
    """Like IPython's shell, which uses a bound method as its exception hook."""

    def show(self, x):
        return [x, "shown"]

    __call__ = show


CALLABLES = [
    Shell().show, Shell(), Shell.show.__get__(3), functools.partial(Shell().show), functools.partial(Shell.show, None),
    functools.partialmethod(Shell.show).__get__(Shell()),
    operator.methodcaller("show"), sorted, max, len, str, lambda x: [x],
]  # fmt: skip


@pytest.mark.parametrize("found", CALLABLES, ids=lambda found: type(found).__name__)
def test_any_callable_of_a_module_is_wrapped(monkeypatch, found):
    module = types.ModuleType("module")
    module.name = found
    seen = []

    def hook(original, *args):
        seen.append((original, args))
        return "hooked"

    for _ in range(2):
        wrap(module, "name", hook)
    assert module.name([1]) == "hooked" and seen == [(found, ([1],))]
    assert hooks_of(module.name) == [hook]


@pytest.fixture
def repairs(monkeypatch):
    """Return three repairs, the second of them not needed, and a list of the applied names."""
    done = []

    @repair("one")
    def put_one():
        """Do the ``first`` thing.

        At length.
        """
        done.append("one")

    @repair("two", needed=lambda: False)
    def put_two():
        done.append("two")

    @repair("three", needed=lambda: "three" not in done)
    def put_three():
        done.append("three")

    monkeypatch.setattr(module, "_states", {})
    return (put_one, put_two, put_three), done


@pytest.mark.parametrize("without, states, done", [
    (None, ["applied", "not needed", "applied"], ["one", "three"]),
    ("", ["applied", "not needed", "applied"], ["one", "three"]),
    ("one", ["switched off", "not needed", "applied"], ["three"]),
    (" three,one,", ["switched off", "not needed", "switched off"], []),
])  # fmt: skip
def test_a_repair_is_applied_once_if_needed_and_not_switched_off(repairs, monkeypatch, without, states, done):
    monkeypatch.delenv(WITHOUT, raising=False) if without is None else monkeypatch.setenv(WITHOUT, without)
    assert [each.state for each in repairs[0]] == [None] * 3
    for _ in range(2):
        apply(repairs[0])
        assert [each.state for each in repairs[0]] == states and repairs[1] == done
    assert repairs[0][0].purpose == "Do the first thing"


def test_an_unknown_name_is_refused_before_any_repair_is_applied(repairs, monkeypatch):
    monkeypatch.setenv(WITHOUT, "three,four")
    with pytest.raises(InputError, match=f"^{WITHOUT} four: no such repair; choose from one, two, three$"):
        apply(repairs[0])
    assert repairs[1] == []
