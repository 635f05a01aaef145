"""Read the keys and values of a grid file as text. Replace each {NAME} in the commands by the text that is defined for it."""

import os
import re
import shlex
from pathlib import Path

import yaml

from ...errors import InputError
from ...files import why

KEYS = ("command", "environment", "axes", "arms", "exclude", "then", "choose", "beyond", "defaults")
_NAMES = re.compile(r"(?<!\$)\{[A-Za-z_]\w*\}")  # not ${HOME}, which a shell in the command expands


class GridFile:
    """A grid file. All values are text, as written.

    Attributes:
        path: path of the file.
        found: the values by key.
        texts: replacement text of each {NAME} that is defined under the key ``defaults``.
        command: words of the command.
        arms: words of each arm's flags, by the arm's name.
        then: words of each command that runs after the first one.
    """

    def __init__(self, path):
        self.path = path
        try:
            found = yaml.load(Path(path).read_text(encoding="utf-8"), _Loader)
        except (OSError, UnicodeDecodeError) as error:
            raise InputError(f"GRID {path}: cannot be read ({why(error)})") from None
        except yaml.YAMLError as error:
            line = f"line {error.problem_mark.line + 1}: " if getattr(error, "problem_mark", None) else ""
            raise InputError(f"GRID {path}: {line}{getattr(error, 'problem', None) or error}") from None
        except RecursionError:
            raise InputError(f"GRID {path}: is nested too deeply") from None
        self.found = found if isinstance(found, dict) else {}
        for key in self.found.keys() - set(KEYS):
            raise self.error(key, f"unknown; choose from {', '.join(KEYS)}")
        self.texts = {f"{{{name}}}": self._text_of(name, text) for name, text in self.mapping("defaults").items()}
        self.command = self.words("command", self.found.get("command"))
        self.arms = {name: self.words(f"arms: {name}", text, "flags") for name, text in self.mapping("arms").items()}
        self.then = [self.words("then", text) for text in self.sequence("then")]
        written = repr([self.found.get(key) for key in ("command", "arms", "environment", "axes", "then")])
        for name in self.texts:
            if name not in written:
                raise self.error("defaults", f"no command contains {name}")

    def error(self, key, problem):
        return InputError(f"GRID {self.path}: {key}: {problem}")

    def _text_of(self, name, text):
        """Return the text for {name} in commands: the environment variable ``name``, or ``text`` if the variable is unset or empty."""
        if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", name) or name == "out":
            raise self.error(
                f"defaults: {name!r}",
                "is not the name of a variable; use letters, digits and _, but not the name out, because {out} is the folder of a run",
            )
        if not isinstance(text, str):
            raise self.error(f"defaults: {name}", "must be text, in one line")
        for other in _NAMES.findall(text):
            if other != "{out}":
                raise self.error(
                    f"defaults: {name}",
                    f"{other} is not allowed here, because names are not replaced under defaults; write the text itself",
                )
        return os.environ.get(name) or text

    def filled(self, key, text):
        """Replace each {NAME} of the defaults in ``text``. {out} is kept, because it differs between runs."""
        unknown = [name for name in _NAMES.findall(text) if name not in self.texts and name != "{out}"]
        if unknown:
            allowed = ", ".join(["{out}", *self.texts])
            raise self.error(
                key, f"{unknown[0]} is not defined; use one of {allowed}, or define {unknown[0]} under defaults"
            )
        return _NAMES.sub(lambda name: self.texts.get(name[0], name[0]), text)

    def words(self, key, text, what="a command"):
        if isinstance(text, str):
            text = self.filled(key, text)
        try:
            words = shlex.split(text) if isinstance(text, str) else None
        except ValueError as error:
            raise self.error(key, f"{text!r}: {error}") from None
        if words is None or what == "a command" and not words:
            raise self.error(key, f"must be {what}, in one line")
        return words

    def mapping(self, key):
        found = self.found.get(key) or {}
        if not isinstance(found, dict):
            raise self.error(key, "must be a mapping, as in {lr: [1e-3, 2e-3]}")
        return found

    def sequence(self, key):
        found = self.found.get(key) or []
        if not isinstance(found, list):
            raise self.error(key, "must be a list")
        return found


class _Loader(yaml.BaseLoader):
    """YAML loader that refuses repeated keys and keeps all values as text, for example ``1e-3``, ``0.10`` and ``no``."""

    def construct_mapping(self, node, deep=False):
        seen = set()
        for key, _ in node.value:
            if not isinstance(key, yaml.ScalarNode):
                raise yaml.constructor.ConstructorError(None, None, "a key is not text", key.start_mark)
            if key.value in seen:
                raise yaml.constructor.ConstructorError(None, None, f"{key.value} appears twice", key.start_mark)
            seen.add(key.value)
        return super().construct_mapping(node, deep)
