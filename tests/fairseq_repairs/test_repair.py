"""Repairs by name, and the one way of changing a function of fairseq."""

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


def test_the_later_hook_is_called_first_and_the_result_comes_back(monkeypatch):
    def method(self, x, y=0):
        """Said of the method."""
        return [self, x, y]

    monkeypatch.setattr(Trainer, "method", method, raising=False)
    wrap(Trainer, "method", first)
    wrap(Trainer, "method", second)
    trainer = Trainer.__new__(Trainer)
    assert trainer.method(1, y=5) == [trainer, 2, 5, "first", "second"]
    assert Trainer.method.__doc__ == "Said of the method."
    assert hooks_of(Trainer.method) == [second, first] and hooks_of(method) == []


class Owner:
    @classmethod
    def of_class(cls, x):
        return [cls, x]

    @staticmethod
    def static(x):
        return [x]

    def inherited(self):
        return [self]


@pytest.mark.parametrize("name, result", [("of_class", [Owner, 1]), ("static", [1])])
def test_a_hook_is_added_once_to_a_method_of_any_kind(monkeypatch, name, result):
    monkeypatch.setattr(Owner, name, vars(Owner)[name])
    for _ in range(2):
        wrap(Owner, name, second)
    assert getattr(Owner, name)(1) == getattr(Owner(), name)(1) == [*result, "second"]


def test_a_hook_of_a_class_leaves_the_one_above_alone():
    class Heir(Owner):
        pass

    wrap(Heir, "inherited", second)
    heir, owner = Heir(), Owner()
    assert heir.inherited() == [heir, "second"] and owner.inherited() == [owner]


class Shell:
    """As IPython's, whose exception hook is a bound method."""

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


@pytest.mark.parametrize("found", [Shell().show, Shell(), functools.partial(Shell().show)])
def test_a_callable_of_a_class_gets_no_instance_with_a_hook_either(found):
    owner = type("Owner", (), {"name": found})
    assert owner().name(1) == [1, "shown"]
    wrap(owner, "name", second)
    assert owner().name(1) == owner.name(1) == [1, "shown", "second"]


@pytest.fixture
def repairs(monkeypatch):
    """Three repairs, of which the second is not needed, and the names of those done."""
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
def test_each_is_done_once_where_needed_and_not_switched_off(repairs, monkeypatch, without, states, done):
    monkeypatch.delenv(WITHOUT, raising=False) if without is None else monkeypatch.setenv(WITHOUT, without)
    assert [one.state for one in repairs[0]] == [None] * 3
    for _ in range(2):
        apply(repairs[0])
        assert [one.state for one in repairs[0]] == states and repairs[1] == done
    assert repairs[0][0].purpose == "Do the first thing"


def test_an_unknown_name_is_refused_before_anything_is_done(repairs, monkeypatch):
    monkeypatch.setenv(WITHOUT, "three,four")
    with pytest.raises(InputError, match=f"^{WITHOUT} four: no such repair; choose from one, two, three$"):
        apply(repairs[0])
    assert repairs[1] == []
