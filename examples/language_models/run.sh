#!/usr/bin/env bash
# Trains a small language model on a text. Prints the bits and the perplexity of a test text, per character or per masked piece.
# You can interrupt it and run it again: finished steps are kept, and training resumes from its last checkpoint (one every 200 updates).
#   MODEL=characters   a character language model; masked: a masked language model of pieces
#   ARM=dense       which parts are random or replaced; README.md explains them
#   DATA=FOLDER     train.txt, valid.txt and test.txt, plain or .gz, also with a prefix, as in novel.train.txt
#   UPDATES=N       updates, over which the learning rate falls to 0; README.md has the defaults
#   SEED=1          random seed
#   RUNS=FOLDER     output folder (default: runs/language_models)
#   DRY_RUN, GPUS, MINI   see ../common.sh
# Arguments go to fairseq-train, as in: MODEL=characters ARM=T bash run.sh --lr 1e-3
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
. "$here/../common.sh" language_models
. "$here/../text.sh"
model=${MODEL:-} arm=${ARM:-} seed=${SEED:-1} data=${DATA:-} runs=${RUNS:-runs/language_models}
. "$here/arms.sh" "$arm" "$model"

case $model in
    characters)
        updates=${UPDATES:-1000}
        cut=(python "$here/characters.py" "$runs/text" "$runs/characters")
        train=(--task language_modeling --arch reservoir_transformer_lm_study --reservoir-decoder "$plan"
            --tokens-per-sample 128 --sample-break-mode none)
        score=(fairseq-eval-lm --tokens-per-sample 128 --context-window 32) ;;
    masked)
        updates=${UPDATES:-1000}
        cut=(python "$here/../quickstart/pieces.py" "$runs/text" txt txt 6000 "$runs/masked")
        train=(--task masked_lm --criterion masked_lm --arch reservoir_roberta_study --reservoir-encoder "$plan"
            --tokens-per-sample 32 --sample-break-mode none)
        score=(fairseq-validate --task masked_lm --criterion masked_lm --valid-subset test --log-format json) ;;
    *) die "MODEL='$model': choose characters or masked" ;;
esac
pieces=$runs/$model bin=$runs/bin-$model out=$runs/$model-$arm-$updates$(tag "$@")-$seed

binarise_text "$bin" "$pieces" "${cut[@]}"
fit "$bin" "$out" "${train[@]}" ${spec[@]+"${spec[@]}"} --dropout 0.1 --optimizer adam --adam-betas '(0.9, 0.98)' \
    --clip-norm 1.0 --lr 2e-3 --lr-scheduler polynomial_decay --warmup-updates 100 --total-num-update "$updates" \
    --max-update "$updates" --max-tokens 2048 --disable-validation --no-epoch-checkpoints --save-interval-updates 200 \
    --keep-interval-updates 1 --num-workers 0 --log-format json --log-interval 20 "$@"
shown "$out/test.log" "${score[@]:0:1}" "$bin" --user-dir "$root/fairseq_reservoir" "${score[@]:1}" \
    --path "$out/checkpoint_last.pt" --max-tokens 4096
run python "$here/report.py" "$out"
