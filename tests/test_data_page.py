"""docs/data.md: its commands make data of a folder of text, out of which a model trains."""

import subprocess
import sys
from pathlib import Path

from tests.support.commands import train
from tests.test_pages import BLOCK, PAGES

ROOT = Path(__file__).parent.parent


def test_text_of_ones_own(tmp_path):
    numbers = (
        "one two three four five six seven eight nine ten".split(),
        "eins zwei drei vier fünf sechs sieben acht neun zehn".split(),
    )
    (tmp_path / "text").mkdir()
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    for part, size in (("train", 400), ("valid", 40), ("test", 40)):
        for language, words in zip(("en", "de"), numbers):
            lines = [f"{words[n % 10]} {words[n // 10 % 10]} {words[n * 7 % 10]}\n" for n in range(size)]
            (tmp_path / "text" / f"{part}.{language}").write_text("".join(lines), encoding="utf-8")
    (commands,) = [block for block in BLOCK.findall(PAGES["data.md"]) if "pieces.py" in block]
    assert "fairseq-preprocess" in commands
    commands = commands.replace("python ", f"{sys.executable} ").replace(
        "fairseq-pre", f"{Path(sys.executable).parent}/fairseq-pre"
    )
    subprocess.run(["bash", "-euc", commands], cwd=tmp_path, check=True)
    assert (tmp_path / "pieces" / "joint.model").is_file()
    trained = train(
        tmp_path / "data-bin", "--max-update", 2, "--batch-size", 20, "--save-dir", tmp_path / "checkpoints"
    )
    assert trained.trainer.get_num_updates() == 2
