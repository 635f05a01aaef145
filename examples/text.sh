# Shared functions of the language model recipes. Source this file after common.sh and set `runs` and `data`.

# binarise_text BIN FOLDER COMMAND...: makes BIN from the text of `data`. COMMAND cuts runs/text into FOLDER. The array `dictionary` has
# further flags of fairseq-preprocess.
binarise_text() {
    local bin=$1 pieces=$2 part file found
    shift 2
    [[ -n $data || ! -f $bin/test.idx ]] || return 0
    [[ -n $data ]] || die "DATA is not set: name the folder with train.txt, valid.txt and test.txt (or .gz)"
    for part in train valid test; do
        found=
        for file in "$data"/{*.,}"$part".txt{.gz,}; do
            file=${file%.gz}
            [[ -f $file || -f $file.gz ]] || continue
            [[ ${found:-$file} == "$file" ]] || die "DATA=$data: has both $found and $file; remove one of them"
            found=$file
        done
        found=${found:-$data/$part.txt}
        copy "$found" "$runs/text/$part.txt"
    done
    folder "$pieces" "$@"
    folder "$bin" fairseq-preprocess --only-source --workers 1 --destdir "$bin" \
        --trainpref "$pieces/train.txt" --validpref "$pieces/valid.txt" --testpref "$pieces/test.txt" ${dictionary[@]+"${dictionary[@]}"}
}
