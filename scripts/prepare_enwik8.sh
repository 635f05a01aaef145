#!/usr/bin/env bash
# enwik8: from the public archive to data-bin/enwik8. Interrupt it and run it again. --help explains.
set -euo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/prepare/launch.sh" enwik8 "$@"
