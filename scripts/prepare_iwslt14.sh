#!/usr/bin/env bash
# IWSLT14 German-English: from the public archive to data-bin/iwslt14. Interrupt it and run it again. --help explains.
set -euo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/prepare/launch.sh" iwslt14 "$@"
