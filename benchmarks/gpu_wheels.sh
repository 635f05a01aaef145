#!/usr/bin/env bash
# Downloads to FOLDER (default .whl) the wheels that benchmarks/gpu.sh installs on a machine without a network. That machine must have
# Python 3.12, torch, numpy, scipy, scikit-learn and sentencepiece. About 35 MB. Keep FOLDER out of git.
#   bash benchmarks/gpu_wheels.sh [FOLDER [MORE...]]
#   MORE            other packages that are missing there; fairseq needs scikit-learn scipy threadpoolctl (50 MB more)
set -euo pipefail
folder=${1:-.whl}
mkdir -p "$folder"
platforms=()
for libc in 2_28 2_27 2_26 2_17; do platforms+=(--platform "manylinux_${libc}_x86_64"); done
# Only packages on which fairseq or the scores depend are pinned.
python3 -m pip download -q --no-deps --only-binary=:all: --python-version 3.12 --implementation cp \
    "${platforms[@]}" --platform manylinux2014_x86_64 --platform manylinux1_x86_64 -d "$folder" \
    fairseq-fixed==0.12.3.1 hydra-core==1.3.2 omegaconf==2.3.0 bitarray sacrebleu==2.6.0 portalocker tabulate colorama \
    lxml regex cffi pycparser 'cython<4' sacremoses joblib cloudpickle click tensorboardX PyYAML protobuf safetensors tqdm packaging \
    pytest iniconfig pluggy pygments "${@:2}"
# This pure-Python package has no published wheel.
python3 -m pip wheel -q --no-deps -w "$folder" antlr4-python3-runtime==4.9.3
ls -1 "$folder"
