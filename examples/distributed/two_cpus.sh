#!/usr/bin/env bash
# Two ranks on the CPUs of this host, to try distributed training: bash two_cpus.sh FLAGS-OF-FAIRSEQ-TRAIN...
#   PROCESSES=2      number of ranks
#   DRY_RUN=1        print the command without running it
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"

run fairseq-train "${training[@]}" --cpu --distributed-world-size "${PROCESSES:-2}" "$@"
