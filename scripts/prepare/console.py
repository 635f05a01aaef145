"""Messages and exit statuses of the scripts."""

import sys
from importlib.util import find_spec


class InputError(Exception):
    """One-line error: the given value, and the allowed values or the remedy."""


def say(text):
    print(text, flush=True)


def require(purpose, packages):
    """Raise InputError unless all ``packages`` (name of the Python module -> name for pip) are installed."""
    missing = [package for module, package in packages.items() if find_spec(module) is None]
    if missing:
        raise InputError(f"{purpose} needs {' and '.join(missing)}: pip install {' '.join(missing)}")


def run(name, main):
    """Call ``main()`` and exit with status 2 and one line after an InputError or OSError, or with 130 after an interrupt."""
    try:
        main()
    except InputError as error:
        print(f"{name}: {' '.join(str(error).splitlines())}", file=sys.stderr)
        sys.exit(2)
    except OSError as error:
        place = f"{error.filename}: " if error.filename else ""
        print(
            f"{name}: {' '.join(f'{place}{error.strerror or error}'.splitlines())}; run again to resume",
            file=sys.stderr,
        )
        sys.exit(2)
    except KeyboardInterrupt:
        print(f"{name}: interrupted; run again to resume", file=sys.stderr)
        sys.exit(130)
