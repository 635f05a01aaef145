# Sets `model`, flags for a `stack` (encoder or decoder) of `depth` layers, with `frozen` reservoirs of a `kind`. Source this file.
count=--reservoir-count
[[ $stack == encoder ]] || count=--reservoir-decoder-count
model=("--$stack-layers" "$depth")
case $kind in
    L) frozen=0 ;;
    T) model+=(--reservoir-type transformer "$count" "$frozen") ;;
    F) model+=(--reservoir-type ffn "$count" "$frozen") ;;
    drop) model+=("--$stack-layerdrop" "$(python -c "print(round($frozen / $depth, 4))")") ;;
    *) die "KIND='$kind': choose L, T, F or drop" ;;
esac
