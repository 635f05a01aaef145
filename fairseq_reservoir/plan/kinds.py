"""Registry of layer kinds. A ``Kind`` contains all facts about one kind.

To add a kind to the package, add a ``Kind`` here and a file in ``layers/`` (docs/adding-a-kind.md). Users register kinds in their
own code (docs/your-own-kind.md).
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from ..errors import InputError
from .freeze_spec import ATOMS

STACKS = ("encoder", "decoder")
WHOLE = "whole"
NOTHING = ()


@dataclass(frozen=True, kw_only=True)
class Kind:
    """One kind of layer.

    Attributes:
        frozen_letter: letter of the frozen, random form in layer plans; None if there is no such form.
        trained_letter: letter of the trained form; None if there is no such form.
        name: name in the slot table and in error messages.
        about: description for the table in the documentation, Markdown.
        freezes: the tensors that ``frozen_letter`` freezes. The value is ``WHOLE``, a tuple of atoms of ``freeze_spec`` such as
            ("self_att.mix",), or ``NOTHING`` if there is no frozen letter. ``WHOLE`` means the whole layer except its sublayer ``cross``,
            the attention to the source in a decoder. Only the letter T freezes this attention too.
        sees_source: whether the layer attends to the source in a decoder.
        own_norm: whether ``--reservoir-norm`` sets the position of the layer's LayerNorm. If False, the LayerNorm has the same position as
            in the model's Transformer layers.
        refused: maps a stack that cannot have this layer to the reason, as in "M is not allowed in a decoder: <reason>".
        even_width: whether the width of the stack must be even.
        heads_divide: whether the number of heads must divide the width of the stack.
        kernel_sizes: whether ``--reservoir-kernel-sizes`` applies to the layer.
        takes_scalar_noise: whether the layer supports fairseq's --quant-noise-scalar, which only replaces ``Linear`` modules.
        reservoir_type: value of ``--reservoir-type`` that selects the frozen form; None if no value does.
        fairseqs: whether the layer is fairseq's own. If so, fairseq can build and load the layer without this plugin.
        registered_by: the module that registered a user's own kind; "" for kinds of the package.

    Raises:
        InputError: the fields contradict each other.
    """

    frozen_letter: str | None
    trained_letter: str | None
    name: str
    about: str
    freezes: str | tuple[str, ...]
    sees_source: bool
    own_norm: bool
    refused: Mapping[str, str] = field(default_factory=dict, hash=False)
    even_width: bool = False
    heads_divide: bool = False
    kernel_sizes: bool = False
    takes_scalar_noise: bool = True
    reservoir_type: str | None = None
    fairseqs: bool = False
    registered_by: str = ""

    def __post_init__(self) -> None:
        for letter in (self.frozen_letter, self.trained_letter):
            if letter is not None and not (len(letter) == 1 and letter.isascii() and letter.isalpha()):
                raise InputError(f"{letter!r}: the letter of a kind must be one of A to Z or a to z")
        if not self.letters or len(set(self.letters)) != len(self.letters):
            raise InputError(f"{self.name}: give frozen_letter or trained_letter; if both are given, they must differ")
        if self.freezes != WHOLE and (isinstance(self.freezes, str) or not set(self.freezes) <= set(ATOMS)):
            raise InputError(
                f"{self.name}: the value of freezes is {self.freezes!r}; it must be {WHOLE!r} or a tuple of {' '.join(ATOMS)}"
            )
        if (self.frozen_letter is None) != (self.freezes == NOTHING):
            raise InputError(
                f"{self.name}: the value of freezes is {self.freezes!r} and the value of frozen_letter is {self.frozen_letter}; a kind "
                "needs both or neither"
            )
        if not set(self.refused) < set(STACKS):
            raise InputError(
                f"{self.name}: refused is set for {', '.join(self.refused)}; set it for {' or '.join(STACKS)}, not for both"
            )
        if self.sees_source and "decoder" in self.refused:
            raise InputError(
                f"{self.name}: sees_source is set, but the kind is refused in a decoder; remove one of these fields"
            )
        if not self.name or set(self.name) & set(",|\n"):
            raise InputError(
                f"{self.name!r}: the name of a kind cannot be empty or contain commas, bars or line breaks"
            )
        if self.fairseqs and self.registered_by:
            raise InputError(
                f"{self.name}: fairseqs is set, but a kind from a --user-dir cannot be fairseq's own layer; remove fairseqs"
            )
        if self.reservoir_type and self.freezes != WHOLE:
            raise InputError(
                f"{self.name}: reservoir_type is set, but the value of freezes is not {WHOLE!r}; remove reservoir_type"
            )

    @property
    def letters(self) -> tuple[str, ...]:
        """Letters of the kind, capital first."""
        return tuple(sorted(filter(None, (self.frozen_letter, self.trained_letter))))

    @property
    def letter(self) -> str:
        """The letter under which the builder of the layer is registered."""
        return self.letters[0]


_MIXES_ALL = "its Fourier transform mixes each token with all later ones, and a decoder cannot see later tokens"

_BY_LETTER: dict[str, Kind] = {}


def register(kind: Kind) -> Kind:
    """Add a kind and return it. Registering an equal kind again changes nothing.

    Raises:
        InputError: another kind already has the same name, letter or reservoir type, or a letter of the kind is R.
    """
    if kind in all_kinds():
        return kind
    taken = [letter for letter in kind.letters if letter in _BY_LETTER or letter == "R"]
    if taken:
        free = [
            letter
            for letter in map(chr, range(65, 91))
            if letter != "R" and not {letter, letter.lower()} & _BY_LETTER.keys()
        ]
        reason = "stands for reservoirs of any kind" if taken[0] == "R" else "is taken"
        raise InputError(
            f"{kind.name}: the letter {taken[0]} {reason}; free letters: {' '.join(free)}, and the same in lower case"
        )
    if kind.name in [other.name for other in all_kinds()] or kind.reservoir_type in reservoir_types():
        raise InputError(f"{kind.name}: another kind already has this name or this reservoir_type; choose another one")
    _BY_LETTER.update(dict.fromkeys(kind.letters, kind))
    return kind


def all_kinds() -> tuple[Kind, ...]:
    """Return all registered kinds, in the order of registration."""
    return tuple(dict.fromkeys(_BY_LETTER.values()))


def kind_of(letter: str) -> Kind:
    """Return the kind with this letter. An unknown letter raises a ``KeyError``."""
    return _BY_LETTER[letter]


def letters_where(stack: str | None = None, **attributes: object) -> tuple[str, ...]:
    """Return the trained and the frozen letter of every kind that matches the arguments.

    Args:
        stack: stack in which the kind must be allowed; None for any.
        attributes: names and required values of attributes of ``Kind``, as in ``letters_where(sees_source=True)``.
    """
    return tuple(
        letter
        for kind in all_kinds()
        if stack not in kind.refused and all(getattr(kind, name) == value for name, value in attributes.items())
        for letter in kind.letters
    )


def frozen_letters(stack: str | None = None, **attributes: object) -> tuple[str, ...]:
    """Return the letters from ``letters_where`` that freeze at least one tensor, such as T but not L."""
    return tuple(letter for letter in letters_where(stack, **attributes) if letter == kind_of(letter).frozen_letter)


def reservoir_types() -> dict[str, str]:
    """Map each value of ``--reservoir-type`` to its letter."""
    return {
        kind.reservoir_type: kind.frozen_letter for kind in all_kinds() if kind.reservoir_type and kind.frozen_letter
    }


def listed(letters: Iterable[str], word: str = "and") -> str:
    """Join letters for a message: ("F", "G", "C") -> "F, G and C"."""
    *most, last = letters
    return f"{', '.join(most)} {word} {last}" if most else last


def describe_letters(stack: str) -> str:
    """Describe the letters that are allowed in a stack, for the help text of the plan's flag."""
    return "; ".join(_describe(kind) for kind in all_kinds() if stack not in kind.refused)


def _describe(kind: Kind) -> str:
    frozen = "frozen" if kind.freezes == WHOLE else f"{' '.join(kind.freezes)} frozen, the rest trained"
    return f"{kind.name}: " + ", ".join(
        f"{letter} {frozen if letter == kind.frozen_letter else 'trained'}" for letter in kind.letters
    )


for _kind in (
    Kind(
        frozen_letter="T",
        trained_letter="L",
        name="Transformer",
        about="fairseq's ordinary layer",
        freezes=WHOLE,
        sees_source=True,
        own_norm=False,
        heads_divide=True,
        reservoir_type="transformer",
        fairseqs=True,
    ),
    Kind(
        frozen_letter="F",
        trained_letter="f",
        name="feed-forward",
        about="x + FFN(LN(x)) and nothing else",
        freezes=WHOLE,
        sees_source=False,
        own_norm=True,
        reservoir_type="ffn",
    ),
    Kind(
        frozen_letter="G",
        trained_letter="g",
        name="GRU",
        about="in an encoder, it reads in both directions, each with half of the width; in a decoder, it reads from left to right",
        freezes=WHOLE,
        sees_source=False,
        own_norm=True,
        even_width=True,
        takes_scalar_noise=False,
        reservoir_type="gru",
    ),
    Kind(
        frozen_letter="C",
        trained_letter="c",
        name="dynamic convolution",
        about="each token predicts the kernel it is convolved with; in a decoder the attention to the source is always trained",
        freezes=WHOLE,
        sees_source=True,
        own_norm=True,
        heads_divide=True,
        kernel_sizes=True,
        takes_scalar_noise=False,
        reservoir_type="conv",
    ),
    Kind(
        frozen_letter=None,
        trained_letter="M",
        name="Fourier mixing",
        about="FNet's transform in place of attention; it has no parameters",
        freezes=NOTHING,
        sees_source=False,
        own_norm=False,
        refused={"decoder": _MIXES_ALL},
    ),
    Kind(
        frozen_letter="S",
        trained_letter="s",
        name="static mixing",
        about="in place of self-attention, weights that depend only on the distance between tokens",
        freezes=("self_att.mix",),
        sees_source=True,
        own_norm=False,
        heads_divide=True,
    ),
):
    register(_kind)
