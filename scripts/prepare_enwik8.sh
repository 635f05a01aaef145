#!/usr/bin/env bash
# enwik8: prepares data-bin/enwik8 from the public archive. Can be interrupted and run again. See --help.
set -euo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/prepare/launch.sh" enwik8 "$@"
