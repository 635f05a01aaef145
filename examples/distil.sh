#!/usr/bin/env bash
# Distilled data: a binarised corpus whose training translations are a trained model's own (Kim and Rush, 2016, "Sequence-level
# knowledge distillation"). Small models learn more from them than from the references. Validation and test stay as they are.
#   TEACHER=CHECKPOINT BIN=FOLDER OUT=FOLDER bash distil.sh [FLAGS-OF-FAIRSEQ-GENERATE...]
# Interrupt it and run it again: what is finished is kept.
#   TEACHER=FILE    a checkpoint of fairseq-train, of any model of translation
#   BIN=FOLDER      the corpus that it was trained on, as fairseq-preprocess made it
#   OUT=FOLDER      the new corpus, with the same dictionaries
#   DRY_RUN, GPUS   see common.sh
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
. "$here/common.sh" distil
teacher=${TEACHER:-} bin=${BIN:-} out=${OUT:-}
[[ -n $teacher && -n $bin && -n $out ]] || die "TEACHER, BIN and OUT must all be set: a checkpoint, its corpus, and the folder to make"
[[ -f $teacher ]] || die "TEACHER=$teacher: no such file"
for file in "$bin"/train.*-*.*.idx; do
    pair=${file##*/train.} pair=${pair%%.*}
done
source=${pair%-*} target=${pair#*-}
[[ -f $bin/dict.$target.txt ]] || die "BIN=$bin: it holds no train.SOURCE-TARGET.TARGET.idx with its dictionary"

written "$out.work/generate.log" fairseq-generate "$bin" --user-dir "$root/fairseq_reservoir" --path "$teacher" --gen-subset train \
    --source-lang "$source" --target-lang "$target" --max-tokens 8192 --beam 5 "$@" ${device[@]+"${device[@]}"}
written "$out.work/train.$target" python "$here/distilled.py" "$out.work/generate.log"
folder "$out.work/target" fairseq-preprocess --only-source --source-lang "$target" --srcdict "$bin/dict.$target.txt" \
    --trainpref "$out.work/train" --destdir "$out.work/target"
for kind in bin idx; do
    written "$out/train.$pair.$target.$kind" cat "$out.work/target/train.$target-None.$target.$kind"
done
for file in "$bin"/dict.*.txt "$bin/train.$pair.$source".* "$bin/valid.$pair".* "$bin/test.$pair".*; do
    written "$out/${file##*/}" cat "$file"
done
say "$out: $bin with the training translations of $teacher"
