# Sets `spec`, the flags of a row of the study. Usage: rows.sh ROW. Source this file.
spec=()
case $1 in
    0) ;;
    1) spec=(--freeze emb) ;;
    2) spec=(--freeze att) ;;
    3) spec=(--freeze ffn) ;;
    4) spec=(--freeze emb,ffn) ;;
    5) spec=(--freeze emb,att) ;;
    6) spec=(--freeze att,ffn) ;;
    2.1) spec=(--freeze att --frozen-init diagonal) ;;
    3.1) spec=(--freeze ffn --frozen-init diagonal) ;;
    *) echo "frozen_components: ARM='$1': name one of the rows 0 1 2 3 4 5 6 2.1 3.1 of $(dirname "${BASH_SOURCE[0]}")/README.md" >&2; exit 2 ;;
esac
