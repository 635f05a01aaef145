"""Colours and matplotlib settings for all figures of studies."""

from ..errors import InputError

# Okabe and Ito's colours, which colour-blind readers can distinguish. Their yellow is too light on paper: violet and grey replace it.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#56B4E9", "#E69F00", "#7F6FB8", "#8C8C8C")
# The HTML page replaces these two colours by the colours of its light or dark theme.
INK, GRID = "#1b1f24", "#d5dae0"
RC = {
    "font.size": 9, "axes.titlesize": 9.5, "legend.fontsize": 8, "svg.fonttype": "none", "svg.hashsalt": "report",
    "text.color": INK, "axes.labelcolor": INK, "xtick.color": INK, "ytick.color": INK, "axes.edgecolor": INK,
    "grid.color": GRID, "axes.grid": True, "axes.axisbelow": True, "axes.spines.top": False, "axes.spines.right": False,
    "axes.linewidth": 0.7, "lines.linewidth": 1.6, "legend.frameon": False, "text.parse_math": False,
}  # fmt: skip


def check_matplotlib(message: str) -> None:
    """Raise an InputError with this message if matplotlib is not installed."""
    try:
        import matplotlib.figure  # noqa: F401
    except ImportError as error:
        raise InputError(message) from error
