# Sets `plan` and `spec`, the layer plan and the further flags of an arm. Usage: arms.sh ARM MODEL. Source this file.
plan=LLLL spec=()
case $1 in
    dense) ;;
    T) plan=LTTL ;;
    F) plan=LFFL ;;
    f) plan=LffL ;;
    shallow) plan=LL ;;
    M) plan=MMLL ;;
    S) plan=SSLL ;;
    att) spec=(--freeze att) ;;
    ffn) spec=(--freeze ffn) ;;
    frozen-qk) spec=(--freeze q,k) ;;
    *) echo "language_models: ARM='$1': name one of the arms in $(dirname "${BASH_SOURCE[0]}")/README.md" >&2; exit 2 ;;
esac
if [[ $2 == characters && $1 == M ]]; then
    echo "language_models: ARM=M: its Fourier transform mixes each character with all later ones; use S" >&2
    exit 2
fi
