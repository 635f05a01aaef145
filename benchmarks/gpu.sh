#!/usr/bin/env bash
# Runs all tests and benchmarks for a GPU, the most valuable first: tests/gpu, whole epochs with and without CUDA graphs, steps beside a
# compiled plain PyTorch model, time and memory of training steps, mask selection, generation, and the house benchmark (Multi30k
# English-German) with several seeds. Needs no network.
#   bash benchmarks/gpu.sh [--minutes N] [--device cuda|cpu] [--tiny] [--dry-run]
#   --minutes N     end after N minutes; unfinished steps are marked
#   --device cpu    run on the CPU, without half precision, for which fairseq needs a GPU
#   --tiny          the smallest sizes and a synthetic corpus: a trial run of a few minutes
#   --dry-run       only print the commands
#   WHEELS=.whl     folder of wheels from benchmarks/gpu_wheels.sh to install; not needed if fairseq is installed
#   DATA=.gpu/multi30k   raw text: train, val and test_2016_flickr, each .en and .de, plain or .gz
#   BIN=.gpu/bin    Multi30k binarised with 6,000 shared pieces, for whole epochs; made from DATA if missing
#   OUT=runs/gpu/COMMIT  folder for results.md, tables, JSON and logs; OUT.work gets installed packages and checkpoints
#   SEEDS="1 2 3"  UPDATES=8000   of the house benchmark
#   COMMIT=...      commit of the files, if they were copied without .git
# Folders are relative to the repository, or absolute.
# The run can be interrupted and repeated: finished steps are kept, and training resumes after its last epoch.
set -euo pipefail
say() { echo "gpu: $*"; }
die() { say "$@" >&2; exit 2; }
arguments=("$@") minutes='' device=cuda tiny='' dry=''
while [[ $# != 0 ]]; do
    case $1 in
        --minutes | --device) [[ $# != 1 ]] || die "$1: needs a value"; printf -v "${1#--}" '%s' "$2"; shift ;;
        --tiny) tiny=1 ;;
        --dry-run) dry=1 ;;
        *) die "$1: unknown; --minutes N, --device cuda|cpu, --tiny, --dry-run" ;;
    esac
    shift
done
[[ -z $minutes || $minutes =~ ^[1-9][0-9]{0,4}$ ]] || die "--minutes $minutes: a whole number, 1 or more"
[[ $device == cuda || $device == cpu ]] || die "--device $device: cuda or cpu"
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
cd "$root"
# With --minutes, the script runs itself again under timeout.
if [[ -n $minutes && -z $dry && -z ${GPU_SH_LIMITED:-} ]]; then
    export GPU_SH_LIMITED=1
    exec timeout --preserve-status --kill-after=30 "${minutes}m" bash "$root/benchmarks/gpu.sh" "${arguments[@]}"
fi
. examples/steps.sh
commit=$(git describe --always --dirty 2>/dev/null || echo "${COMMIT:-unknown}")
out=${OUT:-runs/gpu/$commit${tiny:+-tiny}} wheels=${WHEELS:-.whl} data=${DATA:-.gpu/multi30k}
bin=${BIN:-.gpu/bin} work=$out.work seeds=${SEEDS:-1 2 3} updates=${UPDATES:-8000}
[[ -z $tiny ]] || seeds=${SEEDS:-1}
export PYTHONPATH="$root${PYTHONPATH:+:$PYTHONPATH}" PYTHONHASHSEED=0 PYTHONWARNINGS=ignore

# state NAME TEXT: records the state of a step; the last one counts
state() { [[ -n $dry ]] || printf '%s\t%s\n' "$1" "${*:2}" >>"$out/steps"; }
page() { run python3 benchmarks/gpu_results.py page "$out"; }

# step NAME COMMAND...: runs a step; a failed step is marked, and repeated after all others in the next run
step() {
    local name=$1 status=0 later=''
    shift
    if [[ -n $list ]]; then
        grep -qs "^$name"$'\t' "$out/steps" || state "$name" "not begun"
        return
    fi
    ! grep -qxF "$name" <<<"$failed_before" || later=1
    [[ $later == "$last_ones" ]] || return 0
    [[ -z $dry ]] || printf '\n# %s\n' "$name"
    state "$name" "not finished"
    set +e  # not ||, which would disable set -e within COMMAND
    (set -e; "$@")
    status=$?
    set -e
    if [[ $status == 0 ]]; then
        state "$name" "done"
    else
        failed=1
        state "$name" "failed, exit status $status: $(tail -qn 1 "$out/$name".part/log "$out/$name".txt.part 2>/dev/null || true)"
        say "$name failed, exit status $status" >&2
    fi
    page
}

install() {
    local site said
    if compgen -G "$wheels/*.whl" >/dev/null; then
        folder "$work/site" python3 -m pip install -q --no-index --no-deps --no-compile --no-cache-dir --target "$work/site" "$wheels"/*.whl
        site=$(realpath -m "$work/site")
        PYTHONPATH=$PYTHONPATH:$site PATH=$site/bin:$PATH
    fi
    if [[ -z $dry ]] && ! command -v python >/dev/null; then  # the recipes need this name
        mkdir -p "$work/bin"
        printf '#!/bin/sh\nexec python3 "$@"\n' >"$work/bin/python"
        chmod +x "$work/bin/python"
        PATH=$PATH:$(realpath "$work/bin")
    fi
    [[ -n $dry ]] || said=$(python3 -c "import torch, fairseq" 2>&1) ||
        die "${said##*$'\n'} ($(command -v python3), WHEELS=$wheels); benchmarks/gpu_wheels.sh collects what goes beside torch"
}

# timed NAME PROGRAM FLAGS...: runs a benchmark with the table OUT/NAME/table.md
timed() {
    local name=$1 program=$2
    shift 2
    step "$name" folder "$out/$name" python3 "benchmarks/$program.py" "$@" --device "$device" --output "$out/$name/table"
}

# times WIDTH FFN HEADS ENCODER DECODER: times training steps of every arm in each precision
times() {
    local sizes precision flags half=() plan masked="--arch supermask_one_layer_transformer"
    local depth="--encoder-layers $4 --decoder-layers $5" ours="--arch reservoir_transformer --decoder-layers $5 --reservoir-encoder"
    sizes="--encoder-embed-dim $1 --encoder-ffn-embed-dim $2 --encoder-attention-heads $3 --decoder-attention-heads $3"
    plan=$(printf 'TL%.0s' $(seq $(($4 / 2))))
    [[ $device == cpu ]] || half=(fp16)
    for precision in fp32 ${half[@]+"${half[@]}"} bf16; do
        flags=$sizes
        [[ $precision == fp32 ]] || flags+=" --$precision"
        timed "$1-$2-$precision" step_time "${shape[@]}" \
            --arm "plain: --arch transformer $depth $flags" \
            --arm "only L, --fast: $ours ${4}L --fast $flags" \
            --arm "reservoir T: $ours $plan $flags" \
            --arm "reservoir F: $ours ${plan//T/F} $flags" \
            --arm "supermask: $masked $depth $flags" \
            --arm "supermask, coats: $masked --mask-kind signed --mask-keep-ratio 0.8 --mask-coats 0.5,0.25,0.1 $depth $flags" \
            --arm "frozen attention: --arch frozen_transformer --freeze att $depth $flags" \
            --arm "frozen feed-forward: --arch frozen_transformer --freeze ffn $depth $flags"
    done
}

# binarise: Multi30k in the folder of the house benchmark, which uses it too
binarise() {
    # shellcheck disable=SC2016  # for the inner shell
    DRY_RUN=$dry MINI='' bash -c 'runs=$1 data=$2; set --; . examples/common.sh gpu; . examples/translation.sh
        cut_and_binarise "$runs/bin" en de 6000 --joined-dictionary' gpu "$work/house" "$data"
}

# epochs: times whole epochs, and steps beside the peer; without Multi30k only the corpus of random tokens
epochs() {
    local corpus=()
    if [[ -n $tiny ]]; then corpus=(--tiny --epochs 2 --rounds 1 --threads 1)
    elif [[ -d $bin ]]; then corpus=(--data "$bin")
    elif [[ -f $data/train.en || -f $data/train.en.gz ]]; then
        step corpus binarise
        corpus=(--data "$work/house/bin")
    elif [[ -n $list ]]; then say "epochs of Multi30k skipped: neither BIN=$bin nor DATA=$data has it"; fi
    timed epochs gpu_epochs ${corpus[@]+"${corpus[@]}"}
    timed peer gpu_peer ${tiny:+--tiny --threads 1}
}

# generation: times the beam search of a batch
generation() {
    local flags="--decoder-layers 6 --encoder-layers 6 --encoder-embed-dim 512 --encoder-ffn-embed-dim 1024 --encoder-attention-heads 4"
    flags+=" --decoder-attention-heads 4"
    [[ -z $tiny ]] || flags="--encoder-embed-dim 8 --encoder-ffn-embed-dim 16 --encoder-attention-heads 2 --decoder-attention-heads 2"
    timed generation generation_time "${shape[@]}" --arm "plain: --arch transformer $flags" \
        --arm "masked: --arch supermask_one_layer_transformer $flags"
}

# house ARM SEED FLAGS-OF-FAIRSEQ-TRAIN...: trains, translates and scores an arm, and copies the small files
house() {
    local arm=$1 seed=$2 file of=$1 finished=()
    shift 2
    case $arm in reservoir) of=dense ;; supermask) of=coats ;; esac
    [[ $device == cuda ]] || export GPUS=0
    ARM=$of SIZE=house NAME=$arm SEED=$seed UPDATES=$updates DROPOUT=0.2 RUNS=$work/house DATA=$data MINI=$tiny DRY_RUN=$dry \
        bash examples/one_layer_supermask/multi30k.sh "$@"
    run mkdir -p "$out/house/$arm-$seed"
    for file in train.log generate.log bleu.json; do
        run cp "$work/house/$arm-$seed/$file" "$out/house/$arm-$seed/$file"
    done
    [[ -z $dry ]] || return 0
    for file in "$out"/house/*/bleu.json; do finished+=("${file%/*}"); done
    python3 examples/summarise.py "${finished[@]}" >"$out/house/table.md"
}

all_steps() {
    local seed at_once=()
    ! python3 -c "import xdist" 2>/dev/null || at_once=(-n $(($(nproc) > 15 ? 8 : 4)))  # each process needs its own GPU context of half a GiB
    step tests shown "$out/tests.txt" bash scripts/test.sh --gpu ${at_once[@]+"${at_once[@]}"}
    epochs
    if [[ -n $tiny ]]; then times 8 16 2 2 1; else times 512 1024 4 6 6; fi
    timed masks mask_selection ${scores[@]+"${scores[@]}"}
    generation
    [[ -n $tiny ]] || times 256 1024 4 4 2
    if [[ -z $tiny && ! -f $data/train.en && ! -f $data/train.en.gz ]]; then
        state house "skipped: DATA=$data has no train.en"
        [[ -n $list ]] || say "house benchmark skipped: DATA=$data has no train.en"
        seeds=''
    fi
    for seed in $seeds; do
        step "house, dense, seed $seed" house dense "$seed"
        step "house, reservoir, seed $seed" house reservoir "$seed" --arch reservoir_transformer --reservoir-encoder TLTL
        step "house, supermask, seed $seed" house supermask "$seed"
    done
    [[ -n $tiny ]] || times 1024 4096 16 6 6
}

if [[ -n $tiny ]]; then
    shape=(--pairs 2 --warm-up 1 --max-tokens 40 --length 5 --words 20 --threads 1) scores=(--matrices 2 --rows 32 --pairs 2)
    data=$work/house/numbers
else
    shape=(--pairs 20 --warm-up 5) scores=()
fi
install
run python3 benchmarks/gpu_results.py begin "$out" "$device" ${tiny:+tiny}
list=1 failed='' last_ones=''
failed_before=$(awk -F'\t' '{ last[$1] = $2 } END { for (name in last) if (last[name] ~ /^failed/) print name }' "$out/steps" 2>/dev/null || true)
[[ -n $dry ]] || all_steps
list=''
stopped() { say "not finished, run it again to resume: $out/results.md"; page; exit "$1"; }
trap 'stopped 0' TERM  # --minutes have passed
trap 'stopped 130' INT
all_steps
last_ones=1
[[ -z $failed_before ]] || all_steps
page
say "results: $out/results.md"
[[ -z $failed ]] || die "a step failed"
