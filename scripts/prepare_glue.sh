#!/usr/bin/env bash
# SST-2, QQP, MNLI: from the public archives to data-bin/glue/TASK. Interrupt it and run it again. --help explains.
set -euo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/prepare/launch.sh" glue "$@"
