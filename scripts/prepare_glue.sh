#!/usr/bin/env bash
# SST-2, QQP, MNLI: prepares data-bin/glue/TASK from the public archives. Can be interrupted and run again. See --help.
set -euo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/prepare/launch.sh" glue "$@"
