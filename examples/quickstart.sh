#!/usr/bin/env bash
# From a fresh clone to the BLEU score of a small reservoir transformer, on a public corpus.
# You can interrupt it and run it again: finished steps are kept, and training resumes after its last complete epoch.
#   CORPUS=homeassistant | libreoffice | PATH_PREFIX (your PATH_PREFIX.en and PATH_PREFIX.de)
#   SRC=en TGT=de   languages
#   PLAN=LFLFL      one letter for each encoder layer: L is trained, F and T are frozen reservoirs
#   MAX_UPDATE=1500  SEED=1   number of updates and random seed of the training; with 200 updates, translations are poor
#   WORK=FOLDER     output folder (default: runs/quickstart/...)
#   MINI=1          a test run of about a minute
set -euo pipefail
if [[ ${1-} == --help || ${1-} == -h ]]; then sed -n '/^#!/d; /^#/!q; s/^# \{0,1\}//p' "${BASH_SOURCE[0]}"; exit; fi
[[ $# == 0 ]] || { echo "quickstart: $1: the only argument is --help; settings are variables, as in MAX_UPDATE=200 bash examples/quickstart.sh" >&2; exit 2; }
corpus=${CORPUS:-homeassistant} src=${SRC:-en} tgt=${TGT:-de}
case $corpus in homeassistant | libreoffice | /*) ;; *) corpus=$PWD/$corpus ;; esac
cd "$(dirname "${BASH_SOURCE[0]}")/.."

mini=${MINI:-}
plan=${PLAN:-LFLFL} seed=${SEED:-1} max_update=${MAX_UPDATE:-${mini:+40}} vocabulary=${mini:+1000}
max_update=${max_update:-1500} vocabulary=${vocabulary:-4000}
homeassistant=2026.11.0
work=${WORK:-runs/quickstart/$(basename "$corpus")-$src-$tgt${mini:+-mini}}
model=model-$plan-$max_update-$seed
helpers=examples/quickstart

case $work in -*) work=./$work ;; esac # not a flag of the commands below
say() { echo "quickstart: $*"; }
die() { say "$*" >&2; exit 2; }

case $work in *[,:$'\n']*) die "WORK=$work: fairseq would split it into several folders at a comma or colon; name another folder" ;; esac
[[ ! -e $work || -d $work ]] || die "WORK=$work: is not a folder; name another one"
for number in "MAX_UPDATE=$max_update" "SEED=$seed"; do
    [[ ${number#*=} =~ ^[0-9]{1,15}$ ]] || die "$number: must be a whole number"
done

case $corpus in
homeassistant) min_words=4 ;; # shorter strings are names of things, not sentences
libreoffice)
    min_words=1
    for tool in apt-get dpkg-deb; do
        command -v $tool >/dev/null || die "CORPUS=libreoffice needs $tool (Debian, Ubuntu); CORPUS=homeassistant works anywhere"
    done
    ;;
*)
    min_words=1
    for language in $src $tgt; do
        [[ -f $corpus.$language ]] || die "$corpus.$language does not exist (CORPUS is homeassistant, libreoffice, or the prefix of two such files)"
    done
    ;;
esac
bash scripts/setup.sh
export PATH="$PWD/.venv/bin:$PATH" PYTHONWARNINGS=ignore PYTHONDONTWRITEBYTECODE=1
say "CORPUS=${CORPUS:-homeassistant} SRC=$src TGT=$tgt PLAN=$plan MAX_UPDATE=$max_update SEED=$seed${mini:+ MINI=$mini}; all goes to $work"

settings=(--user-dir fairseq_reservoir --arch reservoir_transformer_study --reservoir-encoder "$plan" --share-all-embeddings)
# Another corpus in WORK would replace the first one's model.
asked=$corpus-$src-$tgt
[[ $corpus != /* ]] || asked=$(cd "$(dirname "$corpus")" >/dev/null && pwd -P)/$(basename "$corpus")-$src-$tgt
[[ ! -f $work/.corpus || $(<"$work/.corpus") == "$asked" ]] ||
    die "WORK=$work: holds the run of another corpus, $(<"$work/.corpus"); name another folder for this one"
if [[ ! -d $work/$model ]]; then # a wrong plan is refused before anything is fetched
    complaint=$(fairseq-reservoir plan "${settings[@]}" 2>&1 >/dev/null) || die "${complaint##*$'\n'}"
fi

root=$PWD dry=
. examples/steps.sh
mkdir -p "$work"
echo "$asked" >"$work/.corpus"

# step NAME COMMAND...: COMMAND writes into $work/NAME
commands=()
step() {
    local target=$work/$1
    shift
    commands+=("$(printf ' %q' "$@")")
    folder "$target" "$@"
}

# logged FILE COMMAND...: appends its output to FILE and shows its progress
logged() {
    local log=$1 status=0
    shift
    say "${log%.part/log}"
    [[ $1 != fairseq-train || ! -t 2 ]] || set -- "$@" --log-format tqdm
    {
        case $1 in fairseq-preprocess | fairseq-generate) exec 2>>"$log" ;; esac  # their log; others write errors to stderr
        "$@"
    } | tee -a "$log" | progress || status=$?
    [[ $status != 0 ]] || return 0
    # Status 2 means that a command has printed its error in one line. These two commands printed it only to their log.
    [[ $status == 2 && $1 != fairseq-preprocess && $1 != fairseq-generate ]] || say "$1 stopped ($(tail -n 1 "$log")); all of its output: $log; run again to continue" >&2
    exit "$status"
}

progress() {
    grep --line-buffered -oE '[0-9]+ pairs.*|epoch [0-9]+:.*num_updates=[0-9]+|epoch [0-9]+ \| valid on .* ppl [0-9.]+' || true
}

raw=$work/corpus/raw
case $corpus in
homeassistant)
    # The wheel is only read, never installed, so it need not fit this Python.
    step download pip -qq download --no-deps --only-binary :all: --ignore-requires-python --python-version 3.14 \
        -d "$work/download" "homeassistant==$homeassistant"
    ;;
libreoffice)
    package() { echo "libreoffice-help-$([[ $1 == en ]] && echo en-us || tr '[:upper:]' '[:lower:]' <<<"$1")"; }
    step download sh -c 'cd "$0" && apt-get -qq download "$@"' "$work/download" "$(package "$src")" "$(package "$tgt")"
    ;;
*) raw=$corpus ;;
esac
[[ $raw == "$corpus" ]] || step corpus python $helpers/corpora.py "$corpus" "$work/download" "$src" "$tgt" "$work/corpus"
step split python $helpers/split.py "$raw.$src" "$raw.$tgt" "$min_words" "$work/split"
step pieces python $helpers/pieces.py "$work/split" "$src" "$tgt" "$vocabulary" "$work/pieces"
step data fairseq-preprocess --source-lang "$src" --target-lang "$tgt" --joined-dictionary --workers 2 \
    --trainpref "$work/pieces/train" --validpref "$work/pieces/valid" --testpref "$work/pieces/test" --destdir "$work/data"

step "$model" fairseq-train "$work/data" "${settings[@]}" --save-dir "$work/$model" --seed "$seed" --max-update "$max_update" \
    --optimizer adam --adam-betas '(0.9, 0.98)' --lr 2e-3 --lr-scheduler inverse_sqrt --warmup-updates 400 \
    --dropout 0.1 --criterion label_smoothed_cross_entropy --label-smoothing 0.1 --max-tokens 2048 \
    --no-epoch-checkpoints --num-workers 0 --log-interval 50 --log-format simple
step "translation-$model" fairseq-generate "$work/data" --user-dir fairseq_reservoir --path "$work/$model/checkpoint_best.pt" \
    --beam 5 --remove-bpe sentencepiece --max-tokens 8192 --results-path "$work/translation-$model"

echo
words=$(($(wc -l <"$work/data/dict.$src.txt") + 4)) # and fairseq's four special symbols
fairseq-reservoir plan "${settings[@]}" --seed "$seed" --source-words "$words" --target-words "$words" 2>/dev/null
echo
python $helpers/report.py "$work/split" "$src" "$tgt" "$work/translation-$model/generate-test.txt"
echo
say "these commands were run (available after . .venv/bin/activate):"
printf ' %s\n' "${commands[@]}"
say "the model in one file, for others with this package (docs/giving-a-model-away.md):"
printf ' %s\n' "fairseq-reservoir export $(printf %q "$work/$model/checkpoint_best.pt") model.safetensors --dtype fp16 \\" \
    "    --sentencepiece-model $(printf %q "$work/pieces/joint.model")" \
    "echo 'The device is not available' | fairseq-reservoir translate model.safetensors"
say "done after $((SECONDS / 60)) min $((SECONDS % 60)) s"
