"""The lines of --log-file have the time of day, and each record is there once. Reports read the file as before."""

import re
from collections import Counter

from fairseq_reservoir.studies.report import read_log
from tests.support.commands import start_training

SMALL = "--reservoir-encoder L --decoder-layers 1 --batch-size 80 --max-epoch 3 --no-save --log-format json --log-interval 1".split()


def test_a_log_file_of_three_epochs(toy_data, tmp_path):
    """160 sentences in batches of 80: 2 updates an epoch."""
    file = tmp_path / "train.log"
    ended = start_training(toy_data, *SMALL, "--log-file", file)
    assert ended.returncode == 0, ended.stderr
    configuration, *lines = file.read_text().splitlines()
    assert configuration.startswith("{'_name'")
    stamped = re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d \| INFO \| (\S+) \| ")
    assert [line for line in lines if not stamped.match(line)] == []
    assert Counter(re.findall(r" \| (train_inner|train|valid) \| \{", "\n".join(lines))) == {
        "train_inner": 6, "train": 3, "valid": 3,
    }  # fmt: skip
    log = read_log(file.read_text())
    assert log.done and log.configuration["model.reservoir_encoder"] == "L"
    times = r"^\d{4}-\d\d-\d\d \d\d:\d\d:\d\d \| INFO \| \S+ \| "
    # Without times, as older versions wrote it.
    older = read_log(re.sub(times, "", file.read_text(), flags=re.MULTILINE))
    assert [len(each.parts[0].records) for each in (log, older)] == [12, 12]
