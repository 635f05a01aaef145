#!/usr/bin/env bash
# WMT18 Turkish-English: prepares data-bin/wmt18_tr_en from the public archives. Can be interrupted and run again. See --help.
set -euo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/prepare/launch.sh" wmt18_tr_en "$@"
