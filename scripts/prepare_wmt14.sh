#!/usr/bin/env bash
# WMT14 English-German: prepares data-bin/wmt14 from the public archives. Can be interrupted and run again. See --help.
set -euo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/prepare/launch.sh" wmt14 "$@"
