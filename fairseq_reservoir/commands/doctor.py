"""``fairseq-reservoir doctor``: features of the machine, advice, versions, and repairs of the installed fairseq."""

import importlib.util
import os
import platform
import re
from importlib import metadata
from pathlib import Path

from ..errors import InputError
from ..fairseq_repairs.version import __version__

HELP = """\
Prints the features of the processor and of the GPUs, the number of threads, advice, and software versions. It also lists the repairs of
fairseq. A repair is this plugin's fix of a defect in the installed fairseq. Start an issue report with this output. The command needs no
network. If torch or fairseq is not installed, the command lists the missing packages.

FAIRSEQ_RESERVOIR_WITHOUT switches off repairs by their names, separated by commas, as in

  FAIRSEQ_RESERVOIR_WITHOUT=last-batch,moving-average fairseq-train ...
"""
# Module, packages that contain it, requirement for pip, purpose.
NEEDED = (
    ("torch", ("torch",), "torch>=2.6,<2.14", "everything except translate, report and sweep"),
    (
        "fairseq",
        ("fairseq-fixed", "fairseq"),
        "fairseq-fixed==0.12.3.1",
        "everything except translate, report, sweep and the reading of exports",
    ),
    ("numpy", ("numpy",), "numpy>=1.21.3,<3", "everything except report and sweep"),
    ("safetensors", ("safetensors",), "safetensors", "exports"),
    ("sacrebleu", ("sacrebleu",), "sacrebleu>=2.3", "BLEU"),
    ("sentencepiece", ("sentencepiece",), "sentencepiece", "--bpe sentencepiece"),
    ("sacremoses", ("sacremoses",), "sacremoses", "--tokenizer moses"),
)
OPTIONAL = (
    ("matplotlib", ("matplotlib",), "matplotlib>=3.7", "figures of fairseq-reservoir report"),
    ("submitit", ("submitit",), "submitit", "fairseq-reservoir sweep --slurm"),
    ("subword_nmt", ("subword-nmt",), "subword-nmt>=0.3.8", "--bpe subword_nmt"),
    ("constriction", ("constriction",), "constriction>=0.4.1", "export --compact and the files it writes"),
    ("tensorboardX", ("tensorboardX",), "tensorboardX>=2.6", "--tensorboard-logdir"),
    ("ctranslate2", ("ctranslate2",), "ctranslate2>=4.8", "translate and materialize --ctranslate2"),
)
# Versions with which the tests have passed. "torch 2.13" stands for all versions 2.13.*.
TRIED = {
    "python": ("python 3.11", "python 3.12", "python 3.13"),
    "torch": ("torch 2.13",),
    "fairseq": ("fairseq-fixed 0.12.3.1",),
}
_NAME = 23


def add_parser(commands) -> None:
    parser = commands.add_parser(
        "doctor",
        help="print hardware, advice, versions and the repairs of fairseq, for issue reports",
        description=HELP,
    )
    parser.set_defaults(run=run)


def run(known, fairseq_flags) -> str:
    advice: list[str] = []
    versions, repairs, machine = _versions(advice), _repairs(advice), _machine(advice)  # each may add advice
    sections = [machine, ["advice", *(f"  {line}" for line in advice or ["nothing to do"])], versions, repairs]
    return "\n\n".join("\n".join(lines) for lines in sections)


def _line(name, text):
    return f"  {name:<{_NAME}}{text}"


def _one_line(error):
    return f"{type(error).__name__}: {' '.join(str(error).split())}"[:120]


def _versions(advice):
    python = platform.python_version()
    lines = [
        "versions",
        _line("fairseq-reservoir", f"{__version__} from {Path(__file__).parents[1]}"),
        _line("python", f"{python}{_mark('python', ('python', python), advice)} on {platform.platform()}"),
    ]
    missing = {}
    for module, packages, install, purpose in (*NEEDED, *OPTIONAL):
        found, is_usable = _installed(module, packages, purpose)
        found += _mark(module, _version(packages), advice)
        lines.append(_line(module, found if is_usable else f"{found}: pip install '{install}'"))
        if not is_usable and (module, packages, install, purpose) in NEEDED:
            missing[module] = f"'{install}'"
    if "torch" in missing:
        # pip would build fairseq in an isolated environment, with a second torch.
        advice.append("to train, run bash scripts/setup.sh in a clone; translate, report and sweep work without torch")
        missing = {module: install for module, install in missing.items() if module not in ("torch", "fairseq")}
    if missing:
        advice.append(f"pip install {' '.join(missing.values())}")
    return lines


def _mark(module, version, advice):
    """Compare an installed version of a module, a pair (name, version), with the versions that the tests have passed with (``TRIED``).

    If ``TRIED`` does not list this version, return the mark " (not tried)" and add a line to ``advice``. Otherwise return "".
    """
    tried = TRIED.get(module)
    found = " ".join(version or ())
    if not (tried and found) or any(re.match(rf"{re.escape(each)}(?!\d)", found) for each in tried):
        return ""
    advice.append(f"{found}: not tried; the tests have passed with {', '.join(tried)}")
    return " (not tried)"


def _version(packages):
    """Return (name, version) of the first installed package of ``packages``, or None."""
    for package in packages:
        try:
            return package, metadata.version(package)
        except metadata.PackageNotFoundError:
            pass
    return None


def _installed(module, packages, purpose):
    """Return (text, is_usable). The text is the module's version, or an error in one line.

    ``is_usable`` is False if ``pip install`` of the module may mend the error.
    """
    found = _version(packages)
    named = " ".join(found) if found and found[0] != module else found[1] if found else "of an unknown version"
    try:
        if module in ("torch", "fairseq"):
            importlib.import_module(module)
        elif importlib.util.find_spec(module) is None:
            raise ModuleNotFoundError(name=module)
    except ModuleNotFoundError as error:
        if error.name == module:
            return f"not installed, needed for {purpose}", False
        return f"{named} does not import without {error.name}", True
    except Exception as error:  # each version may fail in another way
        return f"{named} does not import ({_one_line(error)})", False
    return named, True


def _repairs(advice):
    try:
        from ..fairseq_repairs.in_order import REPAIRS
        from ..fairseq_repairs.repair import SWITCHED_OFF, WITHOUT, apply

        apply(REPAIRS)
    except InputError as error:
        return [f"repairs of fairseq: none, {error}"]
    except Exception as error:
        return [f"repairs of fairseq: none, because fairseq cannot be loaded ({_one_line(error)})"]
    if off := [one.name for one in REPAIRS if one.state == SWITCHED_OFF]:
        advice.append(f"{WITHOUT}: switches off {', '.join(off)}; defects of fairseq may change the results")
    return [
        f"repairs of fairseq, for reference ({WITHOUT}=NAME,NAME switches some off)",
        *(_line(one.name, f"{_state(one):<18}to {one.purpose[0].lower()}{one.purpose[1:]}") for one in REPAIRS),
    ]


def _state(repair):
    return f"{repair.state} (always)" if repair.state == "applied" and not repair.is_conditional else repair.state


def _machine(advice):
    try:
        import torch
    except Exception:
        torch = None
    info = _read("/proc/cpuinfo")
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    features = processor_features(info)
    lines = [
        "machine",
        _line("processor", f"{processor_name(info)}, {cores} of {os.cpu_count()} cores usable here"),
        *(_line(name, found) for name, found in features.items()),
    ]
    lines += _threads(torch, cores, advice) + [_line("freed memory", _memory())] + _gpus(torch, advice)
    if features["bf16"] == "no":
        advice.append(
            "--bf16: this processor has no bf16 instructions. Emulated bf16 is many times slower than fp32; remove --bf16 on this machine"
        )
    return lines


def processor_name(info: str) -> str:
    """Return the processor's name from the text of /proc/cpuinfo. If the text has no name, return the name from Python's ``platform``."""
    named = re.search(r"^model name\s*:\s*(.+)$", info, re.MULTILINE)
    return named[1] if named else platform.processor() or platform.machine()


def processor_features(info: str) -> dict[str, str]:
    """Search the text of /proc/cpuinfo for ``bf16``, ``AMX`` and ``AVX-512`` instructions.

    Returns:
        For each of the three names: "yes" with the names of the instructions found, "no", or "unknown".
    """
    listed = re.search(r"^(?:flags|Features)\s*:\s*(.+)$", info, re.MULTILINE)
    if listed is None:
        return dict.fromkeys(("bf16", "AMX", "AVX-512"), "unknown, because /proc/cpuinfo does not list instructions")
    words = listed[1].split()
    wanted = {
        "bf16": [word for word in words if word in ("avx512_bf16", "amx_bf16", "bf16", "svebf16")],
        "AMX": [word for word in words if word.startswith("amx_")],
        "AVX-512": [word for word in words if word.startswith("avx512f")],
    }
    return {name: f"yes ({', '.join(found)})" if found else "no" for name, found in wanted.items()}


def _threads(torch, cores, advice):
    variable = os.environ.get("OMP_NUM_THREADS")
    used = f"torch uses {torch.get_num_threads()}" if torch else "no torch"
    load = os.getloadavg()[0] if hasattr(os, "getloadavg") else 0.0
    if torch and torch.get_num_threads() > cores:
        advice.append(
            f"torch uses {torch.get_num_threads()} threads on {cores} usable cores; set OMP_NUM_THREADS={cores}"
        )
    elif torch and torch.get_num_threads() > 1 and load > cores / 2:
        advice.append(
            f"{load:.1f} cores are already busy, which makes multi-threaded work much slower."
            " Set OMP_NUM_THREADS=1, or train with --threads 1"
        )
    return [
        _line(
            "threads",
            f"{used}; OMP_NUM_THREADS {'is not set' if variable is None else f'is {variable}'}; load {load:.1f}",
        )
    ]


def _memory():
    try:
        from ..fairseq_repairs.allocator import KEPT_MIB, keep_freed_memory, most_kept, users_own
        from ..fairseq_repairs.repair import APPLIED

        most = most_kept()
    except InputError as error:
        return f"returned to the system, {error}"
    except Exception:
        return "returned to the system"
    if keep_freed_memory.state == APPLIED:
        return "kept for the next training step" + (
            f", at most {most} MiB" if most else f" ({KEPT_MIB}=N: at most N MiB)"
        )
    return f"as set by {users_own()}" if users_own() else "returned to the system"


def _gpus(torch, advice):
    if torch and torch.cuda.is_available():
        return [_line(f"GPU {i}", _gpu(torch, i)) for i in range(torch.cuda.device_count())]
    if torch and Path("/dev/nvidiactl").exists():
        advice.append(
            "GPU: torch cannot use the GPU of this machine; install a torch with CUDA, see https://pytorch.org/get-started"
        )
    return [_line("GPU", "none that torch can use" if torch else "no torch")]


def _gpu(torch, index):
    device = torch.cuda.get_device_properties(index)
    return (
        f"{device.name}, {device.total_memory / 2**30:.0f} GiB, compute capability {device.major}.{device.minor},"
        f" bf16 {'yes' if device.major >= 8 else 'no'}, CUDA {torch.version.cuda}"
    )


def _read(path):
    try:
        return Path(path).read_text()
    except OSError:
        return ""
