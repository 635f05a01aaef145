#!/usr/bin/env bash
# One row of "Not all parameters are born equal" for a language model: trains it and prints its perplexity per piece on the test text.
# You can interrupt it and run it again: finished steps are kept, and training resumes after its last epoch.
#   DATA=FOLDER     folder with train.txt, valid.txt and test.txt, plain or .gz
#   ARM=2           a row of the paper's table; README.md explains the rows
#   SIZE=study      the preset study; paper: width 512, feed-forward 2048, 6 layers. With MINI=1, the dictionary has unused entries, so
#                   that the model has the paper's size
#   PIECES=N        number of SentencePiece's pieces (default: 6000, or 32000 with SIZE=paper)
#   SEED=1          random seed
#   RUNS=FOLDER     output folder (default: runs/frozen_components_lm)
#   DRY_RUN, GPUS, MINI   see ../common.sh
# Arguments go to fairseq-train, as in: ARM=2 bash language_model.sh --max-update 20
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
. "$here/../common.sh" frozen_components
. "$here/../text.sh"
. "$here/rows.sh" "${ARM:-}"

seed=${SEED:-1} runs=${RUNS:-runs/frozen_components_lm} data=${DATA:-} vocabulary=${PIECES:-6000} sizes=() dictionary=() suffix=
case ${SIZE:-study} in
    study) ;;
    paper)
        vocabulary=${PIECES:-32000} suffix=-paper
        [[ -z ${MINI:-} ]] || dictionary=(--padding-factor "$vocabulary")
        for dim in embed input output; do sizes+=("--decoder-$dim-dim" 512); done
        sizes+=(--decoder-ffn-embed-dim 2048 --decoder-layers 6 --decoder-attention-heads 8) ;;
    *) die "SIZE='$SIZE': choose study or paper" ;;
esac
pieces=$runs/pieces$suffix bin=$runs/bin$suffix out=$runs/$ARM$suffix$(tag "$@")-$seed

binarise_text "$bin" "$pieces" python "$here/../quickstart/pieces.py" "$runs/text" txt txt "$vocabulary" "$pieces"
fit "$bin" "$out" --task language_modeling --arch reservoir_transformer_lm_study ${sizes[@]+"${sizes[@]}"} ${spec[@]+"${spec[@]}"} \
    --tokens-per-sample 128 --sample-break-mode none --dropout 0.1 --optimizer adam --adam-betas '(0.9, 0.98)' --lr 2e-3 \
    --lr-scheduler inverse_sqrt --warmup-updates 200 --max-tokens 4096 --max-epoch 6 --no-epoch-checkpoints \
    --num-workers 0 --log-format json --log-interval 20 "$@"
shown "$out/test.log" fairseq-eval-lm "$bin" --user-dir "$root/fairseq_reservoir" --path "$out/checkpoint_best.pt" \
    --tokens-per-sample 128 --context-window 64 --max-tokens 4096
run grep -o "Perplexity: .*" "$out/test.log"
