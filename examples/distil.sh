#!/usr/bin/env bash
# Distilled data: a binarised corpus with a trained model's translations of the training set (Kim and Rush, 2016, "Sequence-level
# knowledge distillation", who found that small models learn more from them). Validation and test stay as they are.
#   TEACHER=CHECKPOINT BIN=FOLDER OUT=FOLDER bash distil.sh [FLAGS-OF-FAIRSEQ-GENERATE...]
# You can interrupt it and run it again: finished steps are kept.
#   TEACHER=FILE    a checkpoint of fairseq-train, of any translation model
#   BIN=FOLDER      its training corpus, made by fairseq-preprocess
#   OUT=FOLDER      the new corpus, with the same dictionaries
#   DRY_RUN, GPUS   see common.sh; one GPU translates
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
[[ -z ${MINI:-} ]] || { echo "distil: MINI=$MINI: not supported, because a teacher and its corpus are needed" >&2; exit 2; }
. "$here/common.sh" distil
teacher=${TEACHER:-} bin=${BIN:-} out=${OUT:-}
[[ -n $teacher && -n $bin && -n $out ]] || die "TEACHER, BIN and OUT must all be set: a checkpoint, its corpus, and the folder to make"
[[ $teacher != -* ]] || teacher=./$teacher
[[ $out != -* ]] || out=./$out
while [[ $out == */ && $out != / ]]; do out=${out%/}; done
[[ -f $teacher ]] || die "TEACHER=$teacher: no such file"
[[ ! $out -ef $bin ]] || die "OUT=$out: is the same folder as BIN, and its references would be lost; name another folder"
for flag in "$@"; do
    case $flag in
        --remove-bpe* | --post-process* | --results-path* | --quiet | --gen-subset* | --skip-invalid* | -s | --source* | -t | --target*)
            die "$flag: not supported, because all training sentences are translated into the teacher's pieces" ;;
    esac
done
languages=$(python "$here/distilled.py" --languages "$teacher")
if [[ $languages == "None None" ]]; then  # like fairseq-train without --source-lang: the language pair of the only corpus
    for file in "$bin"/train.*-*.*.idx; do
        pair=${file##*/train.} pair=${pair%.*.idx}
        [[ ${first:=$pair} == "$pair" ]] || die "BIN=$bin: holds $first and $pair, and the teacher does not record its language pair"
    done
    for file in "$bin/train.$pair".*.idx; do
        file=${file%.idx}
        [[ $pair != "${file##*.}"-* ]] || languages="${file##*.} ${pair#"${file##*.}"-}"
    done
fi
source=${languages% *} target=${languages#* }
pair=$source-$target
[[ -f $bin/train.$pair.$source.idx ]] || pair=$target-$source
for file in "train.$pair.$source.idx" "train.$pair.$target.idx" "dict.$target.txt"; do
    [[ -f $bin/$file ]] || die "BIN=$bin: $file is missing; the teacher translates $source to $target"
done
[[ ! -f $bin/train1.$pair.$source.idx ]] || die "BIN=$bin: its training set has several parts, train1 and so on; binarise it as one"
made=$out/.train.$pair.$target.idx.key
[[ ! -f $out/train.$pair.$target.idx || -f $made ]] || die "OUT=$out: holds a corpus that this script did not make; move it away"

cpu=()
[[ ${GPUS:-} != 0 ]] || cpu=(--cpu)
written "$out.work/generate.log" fairseq-generate "$bin" --user-dir "$root/fairseq_reservoir" --path "$teacher" --gen-subset train \
    --source-lang "$source" --target-lang "$target" --max-tokens 8192 --beam 5 "$@" ${cpu[@]+"${cpu[@]}"}
written "$out.work/train.$target" python "$here/distilled.py" "$out.work/generate.log" "$bin/train.$pair.$source"
folder "$out.work/target" fairseq-preprocess --only-source --source-lang "$target" --srcdict "$bin/dict.$target.txt" \
    --trainpref "$out.work/train" --destdir "$out.work/target"
for kind in bin idx; do
    written "$out/train.$pair.$target.$kind" cat "$out.work/target/train.$target-None.$target.$kind"
done
for file in "$bin"/dict.*.txt "$bin/train.$pair.$source".* "$bin"/valid*."$pair".* "$bin"/test*."$pair".*; do
    [[ ! -f $file ]] || written "$out/${file##*/}" cat "$file"
done
[[ -n $dry ]] || say "$out: $bin with the training translations of $teacher"
