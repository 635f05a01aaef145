#!/usr/bin/env bash
# WMT18 Turkish-English: from the public archives to data-bin/wmt18_tr_en. Interrupt it and run it again. --help explains.
set -euo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/prepare/launch.sh" wmt18_tr_en "$@"
