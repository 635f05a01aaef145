"""fairseq's errors without the plugin, as quoted in docs/what-goes-wrong.md."""

import re
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from tests.support.commands import train

ROOT = Path(__file__).parent.parent
PAGE = (ROOT / "docs" / "what-goes-wrong.md").read_text()
TRAIN = "train {data} --optimizer adam --max-update 1 --batch-size 8 --cpu --save-dir {out} --reservoir-encoder LF"


@pytest.fixture(scope="module")
def checkpoint(toy_data, tmp_path_factory):
    folder = tmp_path_factory.mktemp("a_checkpoint")
    train(toy_data, "--reservoir-encoder", "LF", "--max-update", 1, "--save-dir", folder)
    return folder / "checkpoint_last.pt"


@pytest.mark.slow
@pytest.mark.parametrize(
    "command, quoted",
    [
        (f"{TRAIN} --arch reservoir_transformer --user-dir nowhere", "FileNotFoundError:"),
        (f"{TRAIN} --arch reservoir_transformer", "invalid choice: 'reservoir_transformer'"),
        (f"{TRAIN} --arch reservoir_transformer --user-dir {ROOT}", "invalid choice: 'reservoir_transformer'"),
        (f"score --sys {__file__} --ref {__file__} --sacrebleu", "TypeError: BLEU: Each element of"),
        ("generate {data} --cpu --path {checkpoint}", "KeyError: \"'_name'\""),
        ("generate {data} --cpu --path {checkpoint}" + f" --user-dir {ROOT}", "KeyError: \"'_name'\""),
        (
            f"{TRAIN} --arch transformer --user-dir {ROOT}/fairseq_reservoir",
            "unrecognized arguments: --reservoir-encoder",
        ),
        pytest.param(
            TRAIN.replace(" --reservoir-encoder LF", "")
            + " --arch levenshtein_transformer --task translation_lev --criterion nat_loss --noise random_delete",
            "ImportError: cannot import name 'libnat'",
            marks=pytest.mark.skipif(find_spec("fairseq.libnat") is not None, reason="this fairseq has libnat"),
        ),
    ],
)
def test_the_last_line(command, quoted, toy_data, tmp_path, checkpoint):
    program, *words = command.format(data=toy_data, out=tmp_path / "out", checkpoint=checkpoint).split()
    done = subprocess.run(
        [sys.executable, "-m", f"fairseq_cli.{program}", *words], capture_output=True, text=True, cwd=tmp_path
    )
    assert done.returncode and quoted in done.stderr.strip().splitlines()[-1]
    assert re.search(rf"^\| `{re.escape(quoted)}`", PAGE, flags=re.MULTILINE)
