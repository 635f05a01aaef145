#!/usr/bin/env bash
# A language model of the bytes of enwik8 with reservoirs; prints the bits per byte of the test text ("loss (base 2)").
#   BIN=FOLDER      made by scripts/prepare_enwik8.sh
#   KIND=F          L: all layers are trained; T, F, G or C: kind of the FROZEN reservoirs; drop: LayerDrop skips FROZEN layers on average
#   DEPTH=12        layers, including reservoirs
#   FROZEN=4        number of reservoirs
#   RESIDUAL=rezero   residual connections with one trained gain per layer, as in the paper; norm: pre-norm layers
#   SEED=1          random seed
#   RUNS=FOLDER     output folder (default: runs/enwik8)
#   DRY_RUN, GPUS, MINI   see ../common.sh; an update has at least as many tokens as on eight GPUs
# Arguments go to fairseq-train. You can interrupt it and run it again: finished steps are kept, and training resumes.
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
. "$here/../common.sh" enwik8
. "$here/../text.sh"
stack=decoder kind=${KIND:-F} depth=${DEPTH:-12} frozen=${FROZEN:-4} seed=${SEED:-1} runs=${RUNS:-runs/enwik8} bin=${BIN:-}
. "$here/kinds.sh"
case ${RESIDUAL:-rezero} in
    rezero) model+=(--rezero) residual=-rezero ;;
    norm) residual= ;;
    *) die "RESIDUAL='$RESIDUAL': choose rezero or norm" ;;
esac
out=$runs/$kind-$depth-$frozen$residual$(tag "$@")-$seed
if [[ -z $bin && -n ${MINI:-} ]]; then
    bin=$runs/bin-characters data=$DATA
    binarise_text "$bin" "$runs/characters" python "$here/../language_models/characters.py" "$runs/text" "$runs/characters"
fi
[[ -n $bin ]] || die "BIN is not set: name the folder that scripts/prepare_enwik8.sh made"
[[ -n $dry || -f $bin/test.idx ]] || die "BIN=$bin: test.idx is missing"

fit "$bin" "$out" --task language_modeling --arch "$(preset reservoir_transformer_lm enwik8)" "${model[@]}" \
    --tokens-per-sample 512 --sample-break-mode none --dropout 0.1 --optimizer adam --adam-betas '(0.9, 0.98)' --clip-norm 0.25 \
    --lr 2.5e-4 --lr-scheduler polynomial_decay --warmup-updates 4000 --total-num-update 400000 --max-update 400000 --max-tokens 1536 \
    --update-freq "$(as_many_as 8)" --validate-interval-updates 4000 --save-interval-updates 4000 --keep-interval-updates 1 \
    --no-epoch-checkpoints --log-format json --log-interval 100 "$@"
shown "$out/test.log" fairseq-eval-lm "$bin" --user-dir "$root/fairseq_reservoir" --path "$out/checkpoint_best.pt" \
    --tokens-per-sample 512 --context-window 400 --max-tokens 4096
run grep -o "Loss (base 2): .*" "$out/test.log"
