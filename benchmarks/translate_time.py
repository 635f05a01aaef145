"""Time to translate a test set with fairseq-generate and with `fairseq-reservoir translate`, each in a separate process.

Both read the same export. fairseq-generate reads binarised pieces, with its default batch size. translate reads text. Both times
include starting Python and loading the model. The translations are compared line by line.

  python benchmarks/translate_time.py model.safetensors data-bin test.en --remove-bpe sentencepiece

With --engines, the baseline is `translate --engine torch`. It is compared with CTranslate2 in fp32 and with --int8, as a receiver without
torch translates. --clock cpu compares CPU seconds, which depend less on other processes of a busy machine.

  python benchmarks/translate_time.py model.safetensors data-bin test.en --engines --threads 1
"""

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
from benchmarks import pairs  # noqa: E402

PROMISED_RATIO = 1.05
BIN = Path(sys.executable).parent


class Arm:
    """A command that translates the test set.

    Args:
        name: name in the table.
        flags: flags shown in the table.
        command: the command line.
        given: options of the benchmark's command line.
        read: function that extracts the translations, in order, from the command's output.
    """

    def __init__(self, name, flags, command, given, read):
        self.name, self.flags, self.read = name, flags, read
        self.command = list(map(str, command))
        threads = {"OMP_NUM_THREADS": str(given.threads)} if given.threads else {}
        self.environment = os.environ | threads | {"PYTHONPATH": str(pairs.ROOT)}
        self.text, self.translations, self.clock = given.text, None, given.clock
        self.used = {"seconds of the CPU": [], "MiB": []}

    @property
    def facts(self):
        """Median CPU seconds and largest peak memory of the process."""
        seconds, memory = self.used.values()
        return {"cpu_seconds": statistics.median(seconds), "peak_mib": max(memory)}

    def step(self):
        """Translate the test set. Return the seconds by the chosen clock."""
        with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as errors, open(self.text, "rb") as text:
            started = time.perf_counter()
            process = subprocess.Popen(self.command, stdin=text, stdout=out, stderr=errors, env=self.environment)
            _, status, used = os.wait4(process.pid, 0)
            process.returncode = os.waitstatus_to_exitcode(status)
            seconds = time.perf_counter() - started
            for stream in (out, errors):
                stream.seek(0)
            if process.returncode:
                sys.exit(f"translate_time: {self.name}: {errors.read().decode()[-500:]}")
            self.translations = self.read(out.read().decode())
        self.used["seconds of the CPU"].append(used.ru_utime + used.ru_stime)
        self.used["MiB"].append(used.ru_maxrss / 1024)
        return self.used["seconds of the CPU"][-1] if self.clock == "cpu" else seconds


def read_generate(printed):
    found = {}
    for line in printed.split("\n"):
        if line.startswith("D-"):
            number, _, text = line.split("\t")
            found[int(number[2:])] = text
    return [found[i] for i in sorted(found)]


def read_translate(printed):
    return printed.split("\n")[:-1]


def arms_of(given):
    """The arms, the baseline first."""
    device = ["--cpu"] if given.device == "cpu" else []
    user_dir = pairs.ROOT / "fairseq_reservoir"
    generate = [
        BIN / "fairseq-generate",
        given.data,
        "--user-dir",
        user_dir,
        "--path",
        given.model,
        "--beam",
        given.beam,
    ]
    generate += [*device, "--remove-bpe", given.remove_bpe] if given.remove_bpe else device
    translate = [BIN / "fairseq-reservoir", "translate", given.model, "--beam", given.beam, *device]
    batch = ["--batch-size", given.batch_size] if given.batch_size else []
    batch += ["--max-len-b", given.max_len_b] if given.max_len_b else []

    def of_translate(name, *flags):
        return Arm(f"{name}translate", " ".join(flags), [*translate, *batch, *flags], given, read_translate)

    if given.engines:
        flags = (["--engine", "torch"], ["--engine", "ctranslate2"], ["--engine", "ctranslate2", "--int8"])
        return [of_translate(f"{name}: ", *each) for name, each in zip(("torch", "CTranslate2", "int8"), flags)]
    generate = Arm("fairseq-generate", "", [*generate, *batch], given, read_generate)
    return [generate, of_translate("fairseq-reservoir ", "--engine", "torch")]


def read_arguments(arguments):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", metavar="MODEL.safetensors", type=Path, help="an export with its dictionaries")
    parser.add_argument("data", metavar="DATA", type=Path, help="folder with the binarised test set")
    parser.add_argument("text", metavar="TEXT", type=Path, help="source side of the same test set as text")
    parser.add_argument("--remove-bpe", metavar="KIND", help="value of this flag for fairseq-generate")
    parser.add_argument("--beam", type=int, default=5, help="default 5")
    parser.add_argument(
        "--batch-size", type=int, help="batch size of both commands (default: each command's own default)"
    )
    parser.add_argument(
        "--max-len-b", type=int, help="most pieces of a translation (default: each command's own default)"
    )
    parser.add_argument("--engines", action="store_true", help="compare the engines of translate, torch first")
    parser.add_argument("--clock", choices=["wall", "cpu"], default="wall", help="time to compare (default: wall)")
    parser.add_argument("--at-most", type=float, default=PROMISED_RATIO, help=f"default {PROMISED_RATIO}")
    pairs.add_arguments(parser, "translate_time", pairs=5)
    parser.set_defaults(warm_up=1)
    given = parser.parse_args(arguments)
    for path in (given.model, given.data, given.text):
        if not path.exists():
            parser.error(f"{path}: does not exist")
    pairs.check_positive(parser, given, ("pairs", "beam"))
    return given


def main(arguments=None):
    given = read_arguments(arguments)
    arms = arms_of(given)
    found = pairs.measure(arms, given.pairs, given.warm_up)
    theirs, *others = (arm.translations for arm in arms)
    different = [
        sum(one != other for one, other in zip(theirs, ours)) + abs(len(theirs) - len(ours)) for ours in others
    ]
    facts = pairs.surroundings(given.device, given.pairs) | {"lines": len(theirs), "clock": given.clock}
    facts["different"] = different if given.engines else different[0]
    result = {"surroundings": facts, "arms": found}
    result["promise"] = pairs.check_promise(found, arms[1].name, given.at_most)
    how = (
        f"Whole processes are timed by the {given.clock} clock. Each translates {len(theirs):,} lines with beam {given.beam}."
        f" The translations of {' and '.join(map(str, different))} lines differ from the baseline's."
    )
    columns = [("seconds", "seconds", ".2f"), ("CPU seconds", "cpu_seconds", ".2f"), ("peak MiB", "peak_mib", ".0f")]
    pairs.write(given.output, result, pairs.markdown(result, columns, how))
    return result


if __name__ == "__main__":
    result = main()
    sys.exit(0 if result["promise"]["holds"] else 1)
