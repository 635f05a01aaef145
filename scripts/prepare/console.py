"""Messages of the scripts, and their exits."""

import sys
from importlib.util import find_spec


class InputError(Exception):
    """A refusal in one line: what was given, and what is allowed or to be done."""


def say(text):
    print(text, flush=True)


def require(purpose, packages):
    """Raise InputError unless all of ``packages``, a dict of what pip installs by what Python imports, are there."""
    missing = [package for module, package in packages.items() if find_spec(module) is None]
    if missing:
        raise InputError(f"{purpose} needs {' and '.join(missing)}: pip install {' '.join(missing)}")


def run(name, main):
    """Call ``main()`` and leave the process: status 2 and one line for a refusal or an error of the system, 130 for an interrupt."""
    try:
        main()
    except InputError as error:
        print(f"{name}: {' '.join(str(error).splitlines())}", file=sys.stderr)
        sys.exit(2)
    except OSError as error:
        place = f"{error.filename}: " if error.filename else ""
        print(
            f"{name}: {' '.join(f'{place}{error.strerror or error}'.splitlines())}; run again to go on", file=sys.stderr
        )
        sys.exit(2)
    except KeyboardInterrupt:
        print(f"{name}: interrupted; run again to go on", file=sys.stderr)
        sys.exit(130)
