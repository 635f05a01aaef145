"""Part of the seventh proof, with two processes."""

from tests.support.commands import start_training

ARCH = "--arch supermask_one_layer_transformer --encoder-layers 2 --decoder-layers 1".split()


# The processes import it as their --user-dir.
WITNESS = """
import hashlib, os
import fairseq_reservoir
from fairseq_reservoir.masks.masked_weight import masked_modules
from fairseq.trainer import Trainer

train_step = Trainer.train_step

def train_and_tell(self, *args, **kwargs):
    result = train_step(self, *args, **kwargs)
    digest = hashlib.sha256()
    for module in masked_modules(self.get_model()).values():
        digest.update(module.mask.numpy().tobytes())
    with open(f"{os.environ['WITNESS']}.{self.data_parallel_rank}", "a") as out:
        out.write(f"{self.get_num_updates()} {digest.hexdigest()}\\n")
    return result

Trainer.train_step = train_and_tell
"""


def test_7_two_processes_have_the_same_masks(toy_data, tmp_path, monkeypatch):
    (tmp_path / "witness").mkdir()
    (tmp_path / "witness" / "__init__.py").write_text(WITNESS)
    monkeypatch.setenv("WITNESS", str(tmp_path / "masks"))
    monkeypatch.syspath_prepend(tmp_path)
    flags = ["--max-update", 4, "--no-save", "--disable-validation", "--user-dir", tmp_path / "witness"]
    ended = start_training(toy_data, *ARCH, *flags, "--distributed-world-size", 2)
    assert ended.returncode == 0, ended.stderr
    first, second = ((tmp_path / f"masks.{rank}").read_text().splitlines() for rank in (0, 1))
    assert first == second
    assert [line.split()[0] for line in first] == [str(update) for update in range(1, 5)]
    assert len({line.split()[1] for line in first}) == 4
