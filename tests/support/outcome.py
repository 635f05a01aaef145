"""Readers of the files that recipes write."""


def tree(folder):
    """Content of every file below ``folder``, without logs and archives."""
    files = (path for path in sorted(folder.rglob("*")) if path.is_file() and path.suffix != ".log")
    return {str(path.relative_to(folder)): path.read_bytes() for path in files if "archives" not in path.parts}


def lines(path):
    return path.read_text(encoding="utf-8").split("\n")[:-1]


def binary(folder, name, language, dictionary=None):
    """Sentences of ``folder/name`` as strings of symbols."""
    from fairseq.data import Dictionary, data_utils

    words = Dictionary.load(str(folder / f"dict.{language}.txt" if dictionary is None else folder / dictionary))
    return [words.string(sentence) for sentence in data_utils.load_indexed_dataset(str(folder / name), words)]
