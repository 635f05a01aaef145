# Sets `model` to the flags for a `stack` (encoder or decoder) of `depth` layers, with `frozen` reservoirs of a `kind`. Source this file.
count=--reservoir-count
[[ $stack == encoder ]] || count=--reservoir-decoder-count
model=("--$stack-layers" "$depth")
type=
case $kind in
    L) frozen=0 ;;
    T) type=transformer ;;
    F) type=ffn ;;
    G) type=gru ;;
    C) type=conv ;;
    drop) model+=("--$stack-layerdrop" "$(python -c "print(round($frozen / $depth, 4))")") ;;
    *) die "KIND='$kind': choose L, T, F, G, C or drop" ;;
esac
[[ -z $type ]] || model+=(--reservoir-type "$type" "$count" "$frozen")
