#!/usr/bin/env bash
# IWSLT14 German-English: prepares data-bin/iwslt14 from the public archive. Can be interrupted and run again. See --help.
set -euo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/prepare/launch.sh" iwslt14 "$@"
