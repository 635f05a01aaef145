"""Read the lines of a corpus."""


def read_lines(path):
    """Lines of a UTF-8 file without their ends.

    Only a line feed ends a line, as for wc and Moses, so that line i of one file stays with line i of another. A carriage return before
    it belongs to the end (Windows).
    """
    text = path.read_bytes().decode("utf-8-sig")
    return [line.removesuffix("\r") for line in text.removesuffix("\n").split("\n")] if text else []
