"""Files that training cannot start from are refused in one line, before data is read."""

from argparse import Namespace

import pytest
import torch

from fairseq_reservoir.checkpoint.dry_build import build_arch, build_config
from fairseq_reservoir.checkpoint.export import export
from fairseq_reservoir.checkpoint.training_start import check_start
from fairseq_reservoir.errors import InputError
from tests.support.commands import error_of, train

ARCH = "--arch supermask_one_layer_transformer --encoder-layers 1 --decoder-layers 1".split()


@pytest.fixture(scope="module")
def of_masks(toy_data, tmp_path_factory):
    folder = tmp_path_factory.mktemp("masks")
    train(toy_data, *ARCH, "--max-update", 1, "--no-epoch-checkpoints", "--disable-validation", "--save-dir", folder)
    export(folder / "checkpoint_last.pt", folder / "masks.safetensors")
    return folder


def test_resuming_from_an_export(of_l_and_t, tmp_path):
    path = tmp_path / "model.safetensors"
    export(of_l_and_t.path, path)
    answer = error_of("no-data", "--restore-file", path, "--save-dir", tmp_path)
    assert answer == (
        f"fairseq-train: error: --restore-file {path}: is an export, which has no optimizer state; give the original"
        f" checkpoint, or start a new training with --finetune-from-model {path}\n",
        2,
    )
    check_start(Namespace(restore_file="checkpoint_last.pt", finetune_from_model=str(path)), Namespace())


@pytest.mark.parametrize("flag", ["--restore-file", "--finetune-from-model", "--continue-once"])
def test_missing_files_and_other_files(flag, tmp_path):
    """fairseq would train from scratch, or end with a traceback after reading the data."""
    (tmp_path / "folder").mkdir()
    (tmp_path / "empty.pt").touch()
    (tmp_path / "text.pt").write_text("no pickle")
    torch.save({"weights": torch.ones(1)}, tmp_path / "others.pt")
    cases = (
        (tmp_path / "nope.pt", ": no such file"),
        (tmp_path / "nope.safetensors", ": no such file"),
        ("file:///nope.pt", ": no such file"),
        (tmp_path / "folder", ": is a folder; name a file in it"),
        ("/dev/null", ": not an ordinary file"),
        (tmp_path / "empty.pt", ": a damaged checkpoint, cut short or overwritten"),
        (tmp_path / "text.pt", ": not a checkpoint of fairseq ("),
        (tmp_path / "others.pt", ": not a checkpoint of fairseq ("),
    )
    # One check serves all three flags.
    for path, why in cases if flag == "--finetune-from-model" else cases[:1]:
        text, status = error_of("no-data", *ARCH, flag, path, "--save-dir", tmp_path / "run")
        assert text.startswith(f"fairseq-train: error: {flag} {path}{why}") and text.count("\n") == 1 and status == 2
    text, status = error_of("no-data", *ARCH, flag, "", "--save-dir", tmp_path / "run")
    assert text.startswith(f"fairseq-train: error: {flag} ") and text.count("\n") == 1 and status == 2
    assert not (tmp_path / "run").exists()


def test_a_missing_default_is_allowed(toy_data, tmp_path):
    flags = [*ARCH, "--max-update", 1, "--disable-validation", "--no-epoch-checkpoints", "--save-dir", tmp_path]
    assert len(train(toy_data, *flags, "--restore-file", "checkpoint_last.pt").losses) == 1
    (tmp_path / "checkpoint_last.pt").unlink()
    (tmp_path / "checkpoint_last.pt").mkdir()
    text, status = error_of(toy_data, *flags)
    assert (
        text.endswith(f"error: --restore-file {tmp_path}/checkpoint_last.pt: is a folder; name a file in it\n")
        and status == 2
    )


@pytest.mark.parametrize("flag", ["--save-dir", "--restore-file", "--finetune-from-model", "--continue-once"])
def test_a_broken_link(flag, tmp_path):
    """fairseq would train from scratch, and replace the link at the first save."""
    link = tmp_path / "checkpoint_last.pt"
    link.symlink_to("elsewhere.pt")
    given = ["--save-dir", tmp_path] if flag == "--save-dir" else [flag, link, "--save-dir", tmp_path / "run"]
    why = f"{link}: is a link to elsewhere.pt, which does not exist; restore that file, or remove the link"
    named = "--restore-file" if flag == "--save-dir" else flag
    assert error_of("no-data", *ARCH, *given) == (f"fairseq-train: error: {named} {why}\n", 2)
    assert link.is_symlink() and [path.name for path in tmp_path.iterdir()] == ["checkpoint_last.pt"]


@pytest.mark.parametrize("flag", ["--restore-file", "--finetune-from-model"])
def test_exports_of_masks_are_refused(of_masks, flag, tmp_path):
    path = of_masks / "masks.safetensors"
    text, status = error_of("no-data", *ARCH, flag, path, "--save-dir", tmp_path)
    assert text.endswith(
        f"error: {flag} {path}: is an export with masks, but without the scores that training needs; give the original checkpoint\n"
    )
    assert status == 2 and text.count("\n") == 1


def test_the_original_checkpoint_starts_a_training(of_masks, toy_data):
    run = train(
        toy_data, *ARCH, "--finetune-from-model", of_masks / "checkpoint_last.pt", "--max-update", 1, "--no-save"
    )
    assert len(run.losses) == 1


RESETS = ["--reset-optimizer", "--reset-lr-scheduler", "--reset-meters", "--reset-dataloader"]


@pytest.mark.parametrize(
    "flags, line",
    [
        (
            "--restore-file a.pt --finetune-from-model b.pt",
            "--restore-file and --finetune-from-model: name only one file to start from",
        ),
        (
            "--restore-file a.pt --continue-once b.pt",
            "--restore-file and --continue-once: name only one file to start from",
        ),
        (
            "--continue-once a.pt --finetune-from-model b.pt",
            "--continue-once and --finetune-from-model: name only one file to start from",
        ),
        *(
            (
                f"--finetune-from-model b.pt {flag}",
                f"{flag}: not needed with --finetune-from-model, which resets optimizer, learning rate, meters and data; remove the flag",
            )
            for flag in RESETS
        ),
    ],
)
def test_two_ways_to_start(of_masks, tmp_path, flags, line):
    """fairseq ignores one of the files, or ends in a traceback after it has read the data."""
    checkpoint = of_masks / "checkpoint_last.pt"
    words = [checkpoint if word in ("a.pt", "b.pt") else word for word in flags.split()]
    answer = error_of("no-data", *ARCH, *words, "--save-dir", tmp_path)
    assert answer == (f"fairseq-train: error: {line}\n", 2)


SPECS = [
    "--freeze emb",
    "--freeze encoder",
    "--freeze encoder.emb,decoder.ffn",
    "--freeze out",
    "--freeze ffn",
    "--freeze-except ln,out",
    "--freeze-except emb",
    "--freeze-except encoder.emb",
    "--freeze encoder --freeze-except emb",
    "--freeze encoder,decoder.emb --freeze-except encoder.layers.0",
]


@pytest.fixture(scope="module")
def flags():
    return vars(build_arch("frozen_transformer_tiny", ["--freeze", "emb", "--frozen-init", "orthogonal"], 20, 20).flags)


@pytest.mark.parametrize("tie", ["", "share_decoder_input_output_embed", "share_all_embeddings"])
@pytest.mark.parametrize("spec", SPECS)
def test_word_vectors_of_drawn_tables_are_refused(flags, spec, tie):
    """They are refused for exactly the tables that are frozen and drawn in the slot table."""
    given = {"freeze": None, "freeze_except": None} | {
        name.removeprefix("--").replace("-", "_"): value for name, value in zip(spec.split()[::2], spec.split()[1::2])
    }
    assert given.keys() == {"freeze", "freeze_except"} <= flags.keys()
    flags = flags | given | ({tie: True} if tie else {})
    drawn = {entry.name for entry in build_config(Namespace(**flags), 20, 20).slot_table.entries if entry.frozen_init}
    for stack in ("encoder",) if "all" in tie else ("encoder", "decoder"):
        owner = "encoder" if "all" in tie else stack
        table = flags | {f"{stack}_embed_path": "v.txt"}
        files = Namespace(restore_file="checkpoint_last.pt", finetune_from_model=None)
        if f"{owner}.embed_tokens.weight" in drawn:
            lost = f"--frozen-init orthogonal: would replace the frozen vectors of --{stack}-embed-path v.txt;"
            with pytest.raises(InputError, match=lost):
                check_start(files, Namespace(**table))
        else:
            check_start(files, Namespace(**table))
        check_start(files, Namespace(**table | {"frozen_init": "model"}))


def test_vectors_are_refused_before_data_is_read(tmp_path):
    (tmp_path / "v.txt").write_text("1 16\n")
    flags = "--arch frozen_transformer_tiny --freeze emb --frozen-init orthogonal --encoder-embed-path".split()
    line, status = error_of("no-data", *flags, tmp_path / "v.txt", "--save-dir", tmp_path)
    assert status == 2 and line.startswith("fairseq-train: error: --frozen-init orthogonal: would replace")
    assert line.count("\n") == 1 and line.endswith("; remove one of them\n")
