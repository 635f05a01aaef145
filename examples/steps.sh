# Functions that run the steps of a recipe and keep finished ones. Source this file and set `root` (the repository) and `dry` (not
# empty: print the commands without running them). The recipe defines the functions `say` and `die`.
#   folder FOLDER COMMAND...    COMMAND writes into FOLDER
#   written FILE COMMAND...     COMMAND prints FILE
#   shown FILE COMMAND...       COMMAND prints FILE, with its errors; the output is also shown on the terminal
#   trained FOLDER COMMAND...   COMMAND is a fairseq-train and saves its checkpoints in FOLDER
#   tag ARGUMENT...             prints the arguments as a part of a folder's name
# A step writes NAME.part and renames it when it is complete. The step runs again if its command has changed, or a file that the command
# names, or the step that made such a file or folder. Their paths do not matter.
# `trained` resumes from the last checkpoint in FOLDER, also on another machine and with a larger --max-update. GPUs, --update-freq, and
# the intervals of saving and logging may differ. Other flags or data are refused if FOLDER already has a checkpoint.

# If another process is busy, spinning threads make a training several times slower. Sleeping threads do not.
export OMP_WAIT_POLICY=${OMP_WAIT_POLICY-passive}

# tag ARGUMENT...: prints a part of a run's name for arguments that change the training, such as -reservoir-encoder-LTLTL, or a hash of
# them if they are long. Without it, a run with other flags would have the folder of the run without them.
tag() {
    local text
    without "$places $lengths" "$@"
    [[ ${#rest[@]} != 0 ]] || return 0
    text="-${rest[*]}"
    text=${text//[ =]/-}
    while [[ $text == *--* ]]; do text=${text//--/-}; done
    [[ $text =~ ^[a-zA-Z0-9.,_-]{1,60}$ ]] || text=-flags-$(printf '%s\n' "${rest[@]}" | cksum | cut -d ' ' -f 1)
    echo "$text"
}

# run COMMAND...
run() { if [[ -n $dry && $(type -t "$1") != function ]]; then printf '%q ' "$@"; echo; else "$@"; fi; }

# logged FILE COMMAND...: shows its output and appends it to FILE
logged() {
    local file=$1
    shift
    if [[ -z $dry ]]; then "$@" 2>&1 | tee -a "$file"
    elif [[ $(type -t "$1") == function ]]; then "$@"
    else printf '%q ' "$@"; printf '2>&1 | tee -a %q\n' "$file"; fi
}

folder() {
    local target=$1 part=$1.part word moved=()
    shift
    ! kept "$target" "$@" || return 0
    [[ -n $dry || ! -e $target ]] || marked || die "$target exists and was not made by a recipe: move it away"
    [[ $1 == fairseq-train && -f $part/key && $(<"$part/key") == "$key" ]] || run rm -rf "$part"
    run mkdir -p "$part"
    [[ -n $dry ]] || echo "$key" >"$part/key"
    for word in "$@"; do  # a single substitution would interpret [x] and & in the folder's name
        case $word in "$target" | "$target"/*) moved+=("$part${word#"$target"}") ;; *) moved+=("$word") ;; esac
    done
    logged "$part/log" "${moved[@]}"
    run rm -rf "$target"
    run mv "$part" "$target"
}

written() {
    local file=$1
    shift
    ! kept "$file" "$@" || return 0
    run mkdir -p "${file%/*}"
    if [[ -n $dry ]]; then printf '%q ' "$@"; printf '> %q\n' "$file"; else "$@" >"$file.part"; complete "$file"; fi
}

shown() {
    local file=$1
    shift
    ! kept "$file" "$@" || return 0
    run mkdir -p "${file%/*}"
    run rm -f "$file.part"
    logged "$file.part" "$@"
    complete "$file"
}

trained() {
    local out=$1 words made begun file
    shift
    without "$places" "$@"
    ! by=contents kept "$out" "${rest[@]}" || return 0
    run mkdir -p "$out"
    if [[ -z $dry ]]; then
        words=$({ cat "$2"/dict*.txt "$2"/*/dict*.txt 2>/dev/null || true; } | cksum)
        [[ ! -f $out/.words || $(<"$out/.words") == "$words" ]] ||
            die "$out was trained on other data with other dictionaries than $2: move it away"
        without "$places $lengths" "$@"
        begun=$(by=contents trace "$out" "${rest[@]}")
        for file in "$out"/checkpoint*; do break; done
        [[ ! -e $file || ! -f $out/.begun || $(<"$out/.begun") == "$begun" ]] || die "$out was started with other flags or data:" \
            "move it away or name another RUNS folder, or, to continue it anyway, rm $(printf %q "$out/.begun")"
        echo "$words" >"$out/.words"
        echo "$begun" >"$out/.begun"
        for made in "$out"/.*.key; do  # made from the former model
            [[ -f $made ]] || continue
            words=${made##*/.}
            rm -f "$out/${words%.key}" "$made"
        done
        rm -f "$out/key"
    fi
    logged "$out/train.log" "$@"
    [[ -n $dry ]] || echo "$key" >"$out/key"
}

# Flags of fairseq-train that do not change a training: flags without a value, then flags of the machine, of saving and logging, and of length.
bare=" --cpu --no-progress-bar --no-epoch-checkpoints --no-last-checkpoints "
places="$bare --distributed-world-size --update-freq --num-workers --ddp-backend --threads --log-format --log-interval --log-file
 --tensorboard-logdir --wandb-project --aim-repo --aim-run-hash --save-interval --save-interval-updates --keep-interval-updates
 --keep-last-epochs --keep-best-checkpoints "
lengths=" --max-update --max-epoch --patience --stop-time-hours "

# without FLAGS COMMAND...: sets `rest`, the words of a command without these flags and their values
without() {
    local flags=${1//$'\n'/ }
    shift
    rest=()
    while [[ $# != 0 ]]; do
        if [[ $1 != --* || $flags != *" ${1%%=*} "* ]]; then rest+=("$1")
        elif [[ $1 != *=* && $bare != *" $1 "* && $# != 1 ]]; then shift; fi
        shift
    done
}

# kept TARGET COMMAND...: succeeds if TARGET exists and this command made it from the same inputs. Sets `key`, a hash of them, and `mark`, its file.
kept() {
    key='' mark=''
    [[ -z $dry ]] || return 1
    key=$({ [[ $(type -t "$2") != function ]] || declare -f "$2"; trace "$@"; } | cksum)
    mark_of "$1"
    [[ -e $1 && -f $mark && $(<"$mark") == "$key" ]] || return 1
    [[ ! -d $1 ]] || say "$1 is there: kept"
}

complete() {
    [[ -n $dry ]] || { rm -f "$1"; echo "$key" >"$mark"; }
    run mv "$1.part" "$1"
}

# mark_of PATH: sets `mark`, the file with the key of the step that made PATH
mark_of() { if [[ -d $1 ]]; then mark=$1/key; else mark=${1%/*}/.${1##*/}.key; fi; }
marked() { [[ -f $mark && $(head -c 40 "$mark" | tr -d '\0') =~ ^[0-9]+\ [0-9]+$ ]]; }  # a file of the user's may be called key

# inside FOLDER TARGET: checksums and names of its files, except hidden ones, logs, and folders that contain TARGET
inside() {
    local skip=./:
    [[ $2 != "$1"/* ]] || { skip=${2#"$1"/}; skip=./${skip%%/*}; }
    (cd "$1" >/dev/null && find -L . \( -name '.?*' -o -name __pycache__ -o -path "$skip" \) -prune -o \
        -type f ! -name '*.log' ! -name log ! -name key -exec cksum {} + | LC_ALL=C sort -k 3)
}

# trace TARGET WORD...: the words of a command, with files and folders replaced by their contents. A step's folder counts by the command
# that made it. With by=contents, for trainings, data count by their files, so that the same data made again count as the same.
trace() {
    local target=$1 word path before='' LC_ALL=C
    shift
    for word in "$@"; do
        path=$word
        while mark_of "$path"; [[ $path == */* ]] && ! marked; do path=${path%/*}; done
        case $word in
            "$target" | "$target"/*) printf '%s\n' ".${word#"$target"}" ;;
            *)
                if [[ ${by:-} == contents && -d $word ]] && folder_of_data; then inside "$word" "$target" | cksum
                elif [[ $path == */* ]]; then printf '%s\n' ".${word#"$path"}" "$(<"$mark")"
                elif [[ -f $word ]]; then cksum <"$word"
                elif [[ -d $word ]] && (cd "$word" >/dev/null && cksum .*key) 2>/dev/null; then :  # by the steps that made files in it
                elif [[ -d $word ]] && folder_of_data; then inside "$word" "$target" | cksum
                else printf '%s\n' "${word#"$root"/}"; fi ;;
        esac
        before=$word
    done
}
# A flag's value is a folder only if it contains a /: --task xor does not.
folder_of_data() { [[ $before != --user-dir && ($before != -* || $word == */*) ]]; }
