#!/usr/bin/env bash
# Trains on this machine: the demo (configs/demo.py into runs/demo), or whatever the flags say.
#
#     launch/local.sh [flags of rlanything_jax.train]
#     launch/local.sh --workdir=runs/short --config.iterations=10

# shellcheck source-path=SCRIPTDIR source=setup.sh
source "$(dirname "${BASH_SOURCE[0]}")/setup.sh" ""

# The defaults stand only where the flag is not given: absl would read a --config twice.
config=(--config=configs/demo.py)
workdir=(--workdir=runs/demo)
for flag in "$@"; do
  case $flag in
    --config | --config=*) config=() ;;
    --workdir | --workdir=*) workdir=() ;;
  esac
done
# An empty array is an unset variable to the bash of macOS, hence the form of the expansions.
exec python -m rlanything_jax.train ${config[@]+"${config[@]}"} ${workdir[@]+"${workdir[@]}"} "$@"
