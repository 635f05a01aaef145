"""Random damage to files: changed, missing or repeated bytes, or bytes of another file."""


def damaged(content, draw, other=b"", words=()):
    """Return ``content`` with one damage.

    Args:
        content: bytes of a file.
        draw: a ``random.Random``.
        other: bytes of another file, of which a part or all may be taken.
        words: bytes that may replace or break up a part, such as b"\\n".
    """
    at, length = draw.randrange(len(content) + 1), draw.choice([1, 1, 2, 8, 100])
    before, part, after = content[:at], content[at : at + length], content[at + length :]
    return draw.choice(
        [
            lambda: before + bytes(draw.randrange(256) for _ in part) + after,
            lambda: before + bytes(byte ^ 1 << draw.randrange(8) for byte in part) + after,
            lambda: before,
            lambda: before + after,
            lambda: before + part + part + after,
            lambda: before + b"\0" * len(part) + after,
            lambda: before + (draw.choice(words) if words else b"\xff") + after,
            lambda: before + other[at:],
            lambda: other,
            lambda: content + content[:length],
        ]
    )()
