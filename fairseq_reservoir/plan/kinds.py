"""The kinds of layer, one row each: whatever the rest of the package has to know of a kind, it reads here.

A new kind of the package is a row here and a file in ``layers/`` (docs/adding-a-kind.md); a kind of a user's own is registered
from outside (docs/your-own-kind.md).
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
        frozen_letter: the letter of its frozen, random form in layer plans; None if there is no such form.
        trained_letter: the letter of the same layer trained; None if there is no such form.
        name: what the slot table and refusals call it.
        about: what the table of the documentation says of it, Markdown.
        freezes: what ``frozen_letter`` freezes: ``WHOLE``, everything but a sublayer ``cross``, a decoder's attention to the source
            (fairseq's own layer has that within, and T freezes it too), or a tuple of
            atoms of ``freeze_spec``, such as ("self_att.mix",); ``NOTHING`` if there is no such letter.
        sees_source: whether it attends to the source when it stands in a decoder.
        own_norm: whether it is a layer of Reservoir Transformers, which ``--reservoir-norm`` is about; any other has its
            LayerNorm where the model's Transformer layers have it.
        refused: for each stack in which it may not stand, the reason, to be read after "G cannot stand in a decoder: ".
        even_width: whether the width of the stack must be even.
        heads_divide: whether the heads of the stack must divide its width.
        kernel_sizes: whether ``--reservoir-kernel-sizes`` is about it.
        takes_scalar_noise: whether fairseq's --quant-noise-scalar can replace its matrices, as it can Linear layers.
        reservoir_type: what ``--reservoir-type`` calls its frozen form; None if it cannot be chosen there.
        fairseqs: whether the layer is fairseq's own, so that fairseq builds it and reads it without this plugin.
        registered_by: the module that registered a user's own kind, "" for those of the package.

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
                raise InputError(f"{letter!r}: a kind's letter is one of A to Z and a to z")
        if not self.letters or len(set(self.letters)) != len(self.letters):
            raise InputError(
                f"{self.name}: a kind needs a letter for its frozen form, for its trained one, or two different ones"
            )
        if self.freezes != WHOLE and (isinstance(self.freezes, str) or not set(self.freezes) <= set(ATOMS)):
            raise InputError(
                f"{self.name}: freezes {self.freezes!r}, must be {WHOLE!r} or a tuple of {' '.join(ATOMS)}"
            )
        if (self.frozen_letter is None) != (self.freezes == NOTHING):
            raise InputError(
                f"{self.name}: freezes {self.freezes!r}, its frozen letter is {self.frozen_letter}; there must be both or neither"
            )
        if not set(self.refused) < set(STACKS):
            raise InputError(
                f"{self.name}: refused in {', '.join(self.refused)}; of {' and '.join(STACKS)}, one at most"
            )
        if self.sees_source and "decoder" in self.refused:
            raise InputError(f"{self.name}: sees the source, but is refused in a decoder")
        if not self.name or set(self.name) & set(",|\n"):
            raise InputError(f"{self.name!r}: a kind's name has neither commas nor bars")
        if self.fairseqs and self.registered_by:
            raise InputError(f"{self.name}: only kinds of the package are fairseq's own")
        if self.reservoir_type and self.freezes != WHOLE:
            raise InputError(f"{self.name}: a type of reservoir, but freezes no whole layer")

    @property
    def letters(self) -> tuple[str, ...]:
        """Its letters, capital first."""
        return tuple(sorted(filter(None, (self.frozen_letter, self.trained_letter))))

    @property
    def letter(self) -> str:
        """The letter that its layer is registered by."""
        return self.letters[0]


_BOTH_DIRECTIONS = "it reads the whole sentence in both directions, and a decoder may not see what it has yet to write"
_MIXES_ALL = "its Fourier transform mixes every word with all later ones, which a decoder has yet to write"

_BY_LETTER: dict[str, Kind] = {}


def register(kind: Kind) -> Kind:
    """Adds a kind, and returns it; the same one again changes nothing.

    Raises:
        InputError: one of its letters, its name or its type is taken.
    """
    if kind in known():
        return kind
    taken = [letter for letter in kind.letters if letter in _BY_LETTER or letter == "R"]
    if taken:
        free = [
            letter
            for letter in map(chr, range(65, 91))
            if letter != "R" and not {letter, letter.lower()} & _BY_LETTER.keys()
        ]
        stands = "stands for reservoirs of any kind" if taken[0] == "R" else "is taken"
        raise InputError(f"{kind.name}: the letter {taken[0]} {stands}; free are {' '.join(free)}, and the same small")
    if kind.name in [other.name for other in known()] or kind.reservoir_type in reservoir_types():
        raise InputError(f"{kind.name}: there is a kind of this name or of this --reservoir-type")
    _BY_LETTER.update(dict.fromkeys(kind.letters, kind))
    return kind


def known() -> tuple[Kind, ...]:
    """Every kind, in the order of registration."""
    return tuple(dict.fromkeys(_BY_LETTER.values()))


def kind_of(letter: str) -> Kind:
    """The kind that has ``letter``.

    Raises:
        KeyError: there is none.
    """
    return _BY_LETTER[letter]


def letters(stack: str | None = None, **having: object) -> tuple[str, ...]:
    """The letters of plans.

    Args:
        stack: only those that may stand in it.
        having: only those of kinds whose attributes have these values, as in ``letters(sees_source=True)``.
    """
    return tuple(
        letter
        for kind in known()
        if stack not in kind.refused and all(getattr(kind, name) == value for name, value in having.items())
        for letter in kind.letters
    )


def frozen_letters(stack: str | None = None, **having: object) -> tuple[str, ...]:
    """Of ``letters``, those that freeze something."""
    return tuple(letter for letter in letters(stack, **having) if letter == kind_of(letter).frozen_letter)


def reservoir_types() -> dict[str, str]:
    """The values of ``--reservoir-type``, with their letters."""
    return {kind.reservoir_type: kind.frozen_letter for kind in known() if kind.reservoir_type and kind.frozen_letter}


def listed(letters: Iterable[str], word: str = "and") -> str:
    """("F", "G", "C") -> "F, G and C"."""
    *most, last = letters
    return f"{', '.join(most)} {word} {last}" if most else last


def in_words(stack: str) -> str:
    """The letters of a stack with their meaning, for the help of its flag."""
    return "; ".join(_words(kind) for kind in known() if stack not in kind.refused)


def _words(kind: Kind) -> str:
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
        name="bidirectional GRU",
        about="half of the width in each direction",
        freezes=WHOLE,
        sees_source=False,
        own_norm=True,
        refused={"decoder": _BOTH_DIRECTIONS},
        even_width=True,
        takes_scalar_noise=False,
        reservoir_type="gru",
    ),
    Kind(
        frozen_letter="C",
        trained_letter="c",
        name="dynamic convolution",
        about="each word predicts the kernel it is convolved with; in a decoder the attention to the source is always trained",
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
        about="in place of self-attention, weights by distance, whatever the words",
        freezes=("self_att.mix",),
        sees_source=True,
        own_norm=False,
        heads_divide=True,
    ),
):
    register(_kind)
