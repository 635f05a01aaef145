#!/usr/bin/env bash
# Two processes on the CPUs of this host, to try out what several do: bash two_cpus.sh FLAGS-OF-FAIRSEQ-TRAIN...
#   PROCESSES=2      how many
#   DRY_RUN=1        print the command, do not run it
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"

run fairseq-train "${training[@]}" --cpu --distributed-world-size "${PROCESSES:-2}" "$@"
