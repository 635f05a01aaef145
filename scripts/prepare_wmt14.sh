#!/usr/bin/env bash
# WMT14 English-German: from the public archives to data-bin/wmt14. Interrupt it and run it again. --help explains.
set -euo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/prepare/launch.sh" wmt14 "$@"
