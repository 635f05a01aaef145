#!/usr/bin/env bash
# Creates .venv in this clone, with the plugin and all packages that it needs. If .venv is complete, it only checks it.
#   PYTHON=...        the interpreter: 3.11, 3.12 or 3.13 (default: the newest of them on PATH)
#   SYSTEM_TORCH=1    use the torch that the interpreter already has
#   TORCH_INDEX=URL   install torch from this wheel index, e.g. https://download.pytorch.org/whl/cpu
#   TORCH_VERSION=... install another version of torch than the tested one
#   EXTRAS=fastbpe    optional packages, separated by commas
#   UNPINNED=1        the newest packages that pyproject.toml allows, instead of the versions and hashes in scripts/constraints.txt
# An omitted option keeps its value from the last run, even if that run failed. NAME= resets it.
# VENV=.venv-NAME creates that folder instead of .venv. It has its own options.
# `setup.sh --interpreters` lists the supported interpreters, the oldest first: version, tab, path.
# Runs on bash 3.2 (macOS).
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

options="PYTHON SYSTEM_TORCH TORCH_INDEX TORCH_VERSION EXTRAS UNPINNED"
measured_torch=2.13.0
venv=${VENV:-.venv}
stamp=$venv/.setup-stamp  # installed packages and options
lock=.setup.lock

say() { echo "setup: $*"; }
die() { echo "setup: $*" >&2; exit 1; }

# Two lines of the stamp: the settings of the environment itself, and the packages installed into it.
environment_line() { echo "$PWD|$PYTHON|$SYSTEM_TORCH|$TORCH_INDEX|$TORCH_VERSION"; }
packages_line() { echo "$EXTRAS|$UNPINNED|$(cat pyproject.toml setup.py scripts/setup.sh scripts/constraints.* | cksum)"; }
# stamp_text [ENVIRONMENT [PACKAGES]]: the stamp, or one with other first lines during an installation. The next run reads its options.
stamp_text() {
    local name
    echo "${1-$(environment_line)}"
    echo "${2-$(packages_line)}"
    for name in $options; do echo "$name=${!name}"; done
}

recall_options() {
    [[ -s $stamp ]] || return 0
    local line name
    while IFS= read -r line; do
        name=${line%%=*}
        case " $options " in *" $name "*) [[ -n ${!name+x} ]] || printf -v "$name" %s "${line#*=}" ;; esac
    done <"$stamp"
}

# Sets each option to its given value, or to that of the last run, or to "".
resolve_options() {
    local name
    for name in $options; do [[ $given == *" $name "* ]] || unset "$name"; done
    recall_options
    for name in $options; do [[ -n ${!name+x} ]] || printf -v "$name" %s ""; done
}

ready() {
    [[ -s $stamp && $(<"$stamp") == "$(stamp_text)" && -x $venv/bin/fairseq-train ]] && $venv/bin/python -I -c '
import sys
from importlib.util import find_spec
sys.exit(not all(map(find_spec, ("torch", "fairseq", "sentencepiece", "sacrebleu", "pytest", "fairseq_reservoir"))))
' 2>/dev/null
}

# Prints "executable<TAB>version" of an interpreter. For an environment of this clone, prints its base interpreter.
probe() {
    "$1" -c '
import os, sys
own = os.path.realpath(sys.prefix) in [os.path.realpath(name) for name in os.listdir() if name.startswith(".venv")]
print(sys._base_executable if own else sys.executable, sys.version.split()[0], sep="\t")' 2>/dev/null
}

supported="3.11, 3.12 or 3.13"
install_hint="Debian: apt-get install python3 python3-dev python3-venv"
is_supported() { case $1 in 3.11.* | 3.12.* | 3.13.*) ;; *) return 1 ;; esac; }
makes_environments() { "$1" -c 'import ensurepip, venv' 2>/dev/null; }
no_venv() { echo "$1 cannot make virtual environments: install its venv module (Debian: apt-get install python$2-venv)"; }

# Prints "executable<TAB>version" of each supported interpreter on PATH once, in the order of PATH for each name. Interpreters that do
# not run are skipped, such as placeholders of a version manager.
interpreters() {
    local name candidate found path seen=()
    for name in python3.13 python3.12 python3.11 python3 python; do
        while IFS= read -r candidate; do
            found=$(probe "$candidate") || continue
            is_supported "${found#*$'\t'}" || continue
            for path in ${seen[@]+"${seen[@]}"}; do [[ ! $path -ef ${found%$'\t'*} ]] || continue 2; done
            seen+=("${found%$'\t'*}")
            echo "$found"
        done < <(type -aP "$name")
    done
}

# Chooses the newest Python 3.N, the first on PATH of those with the same N. Skips interpreters without the venv module.
choose_python() {
    local found path version best='' best_version='' without=()
    if [[ -n $PYTHON ]]; then
        found=$(probe "$PYTHON") || die "PYTHON=$PYTHON does not run: name a Python $supported ($install_hint)"
        is_supported "${found#*$'\t'}" ||
            die "PYTHON=$PYTHON is Python ${found#*$'\t'}: $supported is needed ($install_hint)"
        PYTHON=${found%$'\t'*}
        return
    fi
    while IFS=$'\t' read -r path version; do
        version=${version%.*}
        if ! makes_environments "$path"; then without+=("$(no_venv "$path" "$version")")
        elif [[ -z $best_version || ${version#3.} -gt ${best_version#3.} ]]; then best=$path best_version=$version; fi
    done < <(interpreters)
    if [[ -z $best ]]; then
        [[ ${#without[@]} == 0 ]] || die "${without[0]}"
        die "no Python $supported found: $install_hint, or name one with PYTHON=/path/to/python"
    fi
    PYTHON=$best
}

list_interpreters() {
    local path version
    while IFS=$'\t' read -r path version; do
        if makes_environments "$path"; then printf '%s\t%s\n' "$version" "$path"
        else echo "setup: skipped: $(no_venv "$path" "${version%.*}")" >&2; fi
    done < <(interpreters) | sort -t . -k 2,2n -k 3,3n
}

check_machine() {
    local version include
    version=$("$PYTHON" -c 'import sys; print("%d.%d" % sys.version_info[:2])')
    makes_environments "$PYTHON" || die "$(no_venv "$PYTHON" "$version")"
    if [[ -n $SYSTEM_TORCH ]]; then
        [[ -z $TORCH_INDEX$TORCH_VERSION ]] ||
            die "SYSTEM_TORCH uses the installed torch: remove TORCH_INDEX and TORCH_VERSION, or give TORCH_INDEX= TORCH_VERSION= after a run with them"
        "$PYTHON" -c 'import torch' 2>/dev/null || die "SYSTEM_TORCH=$SYSTEM_TORCH, but $PYTHON has no torch: install one there, or remove SYSTEM_TORCH"
    fi
    # fairseq has a wheel only for this platform. On all others it is compiled.
    [[ "$version $(uname -sm) $EXTRAS" == "3.12 Linux x86_64 " ]] && return
    { command -v c++ && c++ --version; } >/dev/null 2>&1 ||
        die "no C++ compiler: c++ is not found (Debian: apt-get install build-essential; macOS: xcode-select --install)"
    include=$("$PYTHON" -c 'import sysconfig; print(sysconfig.get_path("include"))')
    [[ -e $include/Python.h ]] || die "no $include/Python.h: install the headers of $PYTHON (Debian: apt-get install python$version-dev)"
}

make_environment() {
    if [[ -e $venv && ! -e $stamp ]]; then
        rmdir $venv 2>/dev/null || die "$venv exists and was not made by scripts/setup.sh: move it away"
    fi
    say "a new environment takes several minutes: 5.4 GB on disk, or 1.7 GB with a torch for CPUs; pip's output is in $venv/pip.log"
    rm -rf $venv
    mkdir $venv
    stamp_text unfinished unfinished >"$stamp"
    "$PYTHON" -m venv ${SYSTEM_TORCH:+--system-site-packages} $venv
    if [[ -n $SYSTEM_TORCH ]]; then
        # A virtual environment made from another one has no access to that one's packages.
        "$PYTHON" -c 'import sys, sysconfig; sys.prefix != sys.base_prefix and print(sysconfig.get_path("purelib"))' \
            >"$($venv/bin/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))')/system_torch.pth"
    fi
}

# Modules are compiled at their first import, because a training imports only a few of the twelve thousand.
pip_install() { pip_run $venv/pip.log install --no-compile "$@"; }

# pip_run LOG ARGUMENTS...: runs pip with its output in the file LOG.
pip_run() {
    local log=$1
    shift
    if ! PIP_PROGRESS_BAR=off $venv/bin/python -m pip --disable-pip-version-check "$@" >"$log" 2>&1; then
        ! grep -E '^ *(ERROR|WARNING)' "$log" | grep -qiE 'no matching distribution|connection|name resolution|timed out' ||
            die "pip could not fetch a package: is the network reachable? ($log: $(grep -m 1 ERROR "$log"))"
        die "pip failed: $(grep -m 1 -E '(ERROR|error|Error):' "$log" || echo 'see its output') (all of it: $log)"
    fi
}

# Prints every 15 seconds the time since the start, the step, and the package that pip downloads or installs.
show_progress() {
    while sleep 15 </dev/null >/dev/null 2>&1; do say "$((SECONDS - started)) s: $(current_work)"; done
}

# pip's warnings and other lines are only in its log.
current_work() {
    local step=preparing package
    [[ ! -s $venv/step ]] || step=$(<"$venv/step")
    package=$(sed -n -E \
        -e 's/^ *Collecting ([^ (]+).*/looking for \1/p' \
        -e 's/^ *(Downloading|Using cached) ([^ ]*\/)?([^ ]+)( \([0-9][^)]*\))?.*/downloading \3\4/p' \
        -e 's/^ *Processing ([^ ]*\/)?([^ ]+).*/reading \2/p' \
        -e 's/^ *Building (wheel|editable) for ([^ ]+).*/building \2/p' \
        -e 's/^ *Installing collected packages.*/installing the packages/p' \
        $venv/pip.log 2>/dev/null | tail -n 1 | sed -e 's/-[^- ]*-[^- ]*-[^- ]*\.whl//' -e 's/\.tar\.gz//' -e 's/%2B/+/') || true
    echo "$step${package:+: $package}"
}

# begin_step NAME: prints the name of a step. show_progress repeats it.
begin_step() {
    say "$1"
    echo "$1" >$venv/step
    rm -f $venv/pip.log
}

# pip skips an index that it cannot read. It then reports that torch does not exist, or installs the torch of another index.
check_torch_index() {
    local reason
    [[ -n $TORCH_INDEX ]] || return 0
    $venv/bin/python -m pip --disable-pip-version-check -vv --retries 0 --timeout 20 index versions --index-url "$TORCH_INDEX" torch \
        >$venv/pip.log 2>&1 || true
    reason=$(grep -m 1 -e "^Could not fetch URL ${TORCH_INDEX%/}/" -e "is not a trusted or secure host" $venv/pip.log) || return 0
    reason=$(sed -e 's/^Could not fetch URL [^ ]* //' -e 's/HTTPS*ConnectionPool.*object at 0x[0-9a-f]*>[:,] *//' -e "s/[\"')]* - skipping\$//" <<<"$reason")
    die "TORCH_INDEX=$TORCH_INDEX cannot be read: $reason (all of pip's output: $venv/pip.log); to do without it, give TORCH_INDEX="
}

# fairseq-fixed requires torchaudio, but needs it only for speech. pip would install 2.11, the last release. With a newer torch, importing
# it raises OSError, and packages that try to import it fail, such as transformers. If no torchaudio can be loaded, we install an empty
# package of that name: it satisfies pip, and provides no module.
leave_out_torchaudio() {
    ! $venv/bin/python -W ignore -c 'import torchaudio' 2>/dev/null || return 0
    mkdir -p $venv/no_torchaudio
    echo 'from setuptools import setup
setup(name="torchaudio", version="2.11.0+none", description="no torchaudio: none can be loaded here", py_modules=[])' \
        >$venv/no_torchaudio/setup.py
    pip_install --no-build-isolation --no-deps $venv/no_torchaudio
}

# Builds fairseq's wheel if there is none for this Python. Three C++ extensions include all headers of torch and take most of the time.
# Only some of fairseq's own models need them, so we do not build them (see docs/what-goes-wrong.md).
compile_fairseq() {
    unset CUDA_HOME  # otherwise fairseq builds kernels without having their sources
    local wheels=$venv/wheels sources=$venv/sources version
    version=$(sed -n 's/.*"\(fairseq-fixed==[^"]*\)".*/\1/p' pyproject.toml)
    [[ ! -x $venv/bin/fairseq-train || $($venv/bin/python -m pip freeze 2>/dev/null) != *"$version"* ]] || return 0
    $venv/bin/python scripts/constraints.py fairseq >$venv/fairseq.txt
    pip_run $venv/fairseq.log download --no-build-isolation --no-deps --dest "$wheels" --require-hashes --requirement $venv/fairseq.txt
    ! ls "$wheels"/*.whl >/dev/null 2>&1 || return 0
    rm -rf "$sources"
    mkdir "$sources"
    tar -xzf "$wheels"/*.tar.gz -C "$sources" --strip-components 1
    sed -i.whole '/^        cpp_extension\.CppExtension(/,/^        ),/d' "$sources/setup.py"
    CFLAGS=-w CXXFLAGS=-w pip_run $venv/fairseq.log wheel --no-build-isolation --no-deps --wheel-dir "$wheels" "$sources"
    rm -r "$sources"
}

# pinned PART [EXTRAS]: installs a part of scripts/constraints.txt. pip refuses files with other hashes.
pinned() {
    $venv/bin/python scripts/constraints.py "$@" >$venv/requirements.txt
    pip_install --no-build-isolation --no-deps --require-hashes --requirement $venv/requirements.txt
}

install_packages() {
    local torch extras="train,test,dev${EXTRAS:+,$EXTRAS}" pins=
    # With SYSTEM_TORCH, the interpreter's own packages are kept.
    [[ -n $SYSTEM_TORCH$UNPINNED ]] || pins=1
    # torch is installed first and packages are built without isolation. Otherwise pip downloads a second torch for building.
    # torch is installed from TORCH_INDEX, the build tools from the default index.
    check_torch_index
    begin_step "step 1 of 3: build tools"
    if [[ -n $pins ]]; then pinned tools; else pip_install "numpy<3" "cython<4" setuptools wheel packaging; fi
    if [[ -z $SYSTEM_TORCH ]]; then
        begin_step "step 2 of 3: torch ${TORCH_VERSION:-$measured_torch}${TORCH_INDEX:+ from $TORCH_INDEX}"
        pip_install ${TORCH_INDEX:+--index-url "$TORCH_INDEX"} "torch==${TORCH_VERSION:-$measured_torch}"
    fi
    torch=$($venv/bin/python -c 'from importlib.metadata import version; print(version("torch"))')
    echo "torch==$torch" >$venv/constraints.txt
    [[ -z $pins ]] || $venv/bin/python scripts/constraints.py plain >>$venv/constraints.txt
    begin_step "step 3 of 3: fairseq, the plugin and what they need, beside torch $torch"
    # Compiling fairseq takes longest, so it runs in the background while the other packages are downloaded.
    set -m  # in its own process group, so that the whole group can be killed
    compile_fairseq &
    compiler=$!
    set +m
    leave_out_torchaudio
    if [[ -n $pins ]]; then pinned rest "$extras"
    else
        # pip reads fairseq's requirements only after compiling it. This list lets their download start earlier.
        $venv/bin/python scripts/constraints.py ranges "$extras" >$venv/requirements.txt
        printf '%s\n' hydra-core==1.3.2 omegaconf==2.3.0 bitarray cffi regex scikit-learn tqdm >>$venv/requirements.txt
        pip_install --no-build-isolation --constraint $venv/constraints.txt --requirement $venv/requirements.txt
    fi
    echo "step 3 of 3: waiting until fairseq is compiled" >$venv/step
    rm -f $venv/pip.log
    wait "$compiler" || exit 1  # it has printed the reason
    compiler=
    pip_install --no-build-isolation --find-links $venv/wheels --constraint $venv/constraints.txt --editable ".[$extras]"
    # If SYSTEM_TORCH's Python already has fairseq, its commands are installed there and not here.
    [[ -x $venv/bin/fairseq-train ]] || pip_install --no-deps --ignore-installed $venv/wheels/*.whl
    rm -rf $venv/wheels
    echo "step 3 of 3: compiling the modules that a training imports" >$venv/step
    rm -f $venv/pip.log
    compile_quietly
    rm $venv/step
}

# Imports the modules of training and translation to compile them. torch imports _dynamo at the first update. Python 3.12 and later
# print a warning when they compile fairseq's wav2vec2_asr.py, which would otherwise appear in a user's first command.
compile_quietly() {
    PYTHONDONTWRITEBYTECODE='' $venv/bin/python -W ignore -c 'import torch._dynamo, fairseq_cli.train, fairseq_cli.generate' 2>$venv/pip.log >/dev/null ||
        die "fairseq does not import: $(tail -n 1 $venv/pip.log)"
}

take_lock() {
    local owner announced=
    until ln -s $$ "$lock" 2>/dev/null; do  # creating a link is atomic, including its target
        [[ -w . ]] || die "cannot write into $PWD"
        owner=$(readlink "$lock" || true)
        if [[ -n $owner ]] && ! kill -0 "$owner" 2>/dev/null; then rm -f "$lock"; continue; fi
        [[ -n $announced ]] || say "waiting for another set-up in this clone (process $owner)"
        announced=1
        sleep 1
    done
    trap 'for group in ${compiler:-} ${progress:-}; do kill -- -"$group" 2>/dev/null || true; done; rm -f "$lock"' EXIT
    trap 'exit 130' INT TERM
}

started=$SECONDS
case $venv in
    .venv | .venv-[A-Za-z0-9]*) [[ $venv != *[!A-Za-z0-9._-]* ]] || die "VENV=$venv: only letters, digits, dots and hyphens" ;;
    *) die "VENV=$venv: .venv or .venv-NAME is allowed" ;;
esac
if [[ ${1-} == --help || ${1-} == -h ]]; then sed -n '/^#!/d; /^#/!q; s/^# \{0,1\}//p' scripts/setup.sh; exit; fi
if [[ ${1-} == --interpreters ]]; then list_interpreters; exit; fi
[[ $# == 0 ]] || die "$1: the only arguments are --help and --interpreters; options are variables, as in EXTRAS=docs bash scripts/setup.sh"
[[ -z ${PYTHON:-} ]] || choose_python  # the stamp has the full path
given=" "
for name in $options; do [[ -z ${!name+x} ]] || given+="$name "; done
resolve_options
if ready; then say "$venv is ready"; exit 0; fi

choose_python
check_machine
take_lock
resolve_options  # another set-up may have finished in the meantime
choose_python
if ready; then say "$venv is ready"; exit 0; fi
rm -f $venv/pip.log
set -m  # in its own process group, so that the whole group can be killed
show_progress &
progress=$!
set +m
say "Python $("$PYTHON" -c 'import platform; print(platform.python_version())') ($PYTHON) in $venv"
if [[ -s $stamp && $(sed -n 1p "$stamp") == "$(environment_line)" && $(sed -n 2p "$stamp") != "$(packages_line)" ]] &&
    $venv/bin/python -m pip --version >/dev/null 2>&1; then
    stamp_text "$(environment_line)" unfinished >"$stamp"  # only the packages have changed
else
    make_environment
fi
install_packages
stamp_text >"$stamp.new"
mv "$stamp.new" "$stamp"
say "ready after $((SECONDS - started)) s; . $venv/bin/activate adds the commands to your shell"
