#!/usr/bin/env bash
# Trains on a slice of Cloud TPU until the run is finished, however often the slice is taken away.
#
#     launch/tpu_pod.sh --name=NAME --type=TYPE --zone=ZONE --bucket=BUCKET [options] -- [flags of rlanything_jax.train]
#     launch/tpu_pod.sh --name=qwen --type=v5p-128 --zone=us-east5-a --bucket=my-runs --spot -- --config=configs/alfworld_qwen2_5_7b.py
#
#     --name=NAME        of the slice, its queued resource and the run: its workdir is gs://BUCKET/NAME
#     --type=TYPE        accelerator type, such as v5litepod-256, v5p-128, v6e-64 or v4-128
#     --bucket=BUCKET    of Cloud Storage, mounted on every host; metrics, trajectories and checkpoints are there at all times
#     --project=PROJECT  the one that gcloud is set to
#     --runtime=VERSION  software of the hosts; by default the one of the type
#     --spot             cheaper, and may be taken away at any time
#     --keep             do not delete the slice when the run is finished
#     --results=DIR      also copy the run's files, but for its checkpoints, to this directory when it is finished
#     --dry-run          print every command, run none
#
# A slice of this name that is there is used again, and a run that is already going on it is watched. The log of the first host is
# shown. A run that was interrupted goes on from its last checkpoint. Needs gcloud, logged in, with the TPU API enabled.

set -euo pipefail

usage() { sed -n '2,/^$/s/^# \{0,1\}//p' "${BASH_SOURCE[0]}"; }

fail() {
  echo "error: $*" >&2
  exit 2
}

name='' type='' zone='' bucket='' project='' runtime='' results='' spot=false keep=false dry=false
while (($#)); do
  case $1 in
    --name=*) name=${1#*=} ;;
    --type=*) type=${1#*=} ;;
    --zone=*) zone=${1#*=} ;;
    --bucket=*) bucket=${1#*=} ;;
    --project=*) project=${1#*=} ;;
    --runtime=*) runtime=${1#*=} ;;
    --results=*) results=${1#*=} ;;
    --spot) spot=true ;;
    --keep) keep=true ;;
    --dry-run) dry=true ;;
    --help | -h)
      usage
      exit
      ;;
    --)
      shift
      break
      ;;
    *) fail "unknown option $1; flags of the training come after --, and --help shows the options" ;;
  esac
  shift
done
[[ $name =~ ^[a-z]([a-z0-9-]*[a-z0-9])?$ ]] || fail "--name='$name': small letters, digits and hyphens, a letter first"
for option in type zone bucket; do
  [[ -n ${!option} ]] || fail "--$option is missing; --help shows the options"
done
for flag in "$@"; do
  [[ $flag != --workdir* ]] || fail "$flag: the workdir is gs://$bucket/$name"
done
bucket=${bucket#gs://}
if [[ -z $runtime ]]; then
  case $type in
    v5litepod-*) runtime=v2-alpha-tpuv5-lite ;;
    v5p-*) runtime=v2-alpha-tpuv5 ;;
    v6e-*) runtime=v2-alpha-tpuv6e ;;
    v4-*) runtime=tpu-ubuntu2204-base ;;
    *) fail "--type='$type' is unknown here: give --runtime as well" ;;
  esac
fi
where=("--zone=$zone")
if [[ -n $project ]]; then where+=("--project=$project"); fi
poll_s=${TPU_POD_POLL_S:-30} # seconds between two looks at a slice that is not there yet
CDPATH='' cd "$(dirname "${BASH_SOURCE[0]}")/.."

run() {
  if $dry; then
    printf '%q ' "$@"
    echo
  else
    "$@"
  fi
}

# Runs a command on hosts of the slice: `on all CMD` or `on 0 CMD`.
on() {
  run gcloud compute tpus tpu-vm ssh "$name" "${where[@]}" "--worker=$1" --quiet "--command=$2"
}

state() {
  if $dry; then
    echo ABSENT
  else
    gcloud compute tpus queued-resources describe "$name" "${where[@]}" '--format=value(state.state)' 2>/dev/null || echo ABSENT
  fi
}

create() {
  local options=("--node-id=$name" "--accelerator-type=$type" "--runtime-version=$runtime")
  if $spot; then options+=(--spot); fi
  run gcloud compute tpus queued-resources create "$name" "${where[@]}" "${options[@]}" --quiet
}

delete() {
  run gcloud compute tpus queued-resources delete "$name" "${where[@]}" --force --quiet
}

# Returns when the slice is there, whatever has to be done for it.
ensure_slice() {
  local now=''
  while true; do
    now=$(state)
    case $now in
      ACTIVE) return ;;
      ABSENT)
        create
        if $dry; then return; fi
        ;;
      SUSPENDED | FAILED) delete ;;
      *) ;;
    esac
    echo "tpu_pod: slice $name is $now" >&2
    sleep "$poll_s"
  done
}

# The hosts get what git knows of, as it lies here, and the same Python that launch/setup.sh makes anywhere.
install() {
  local archive
  archive=$(mktemp -t "$name.XXXXXX")
  run bash -c "git ls-files | tar -czf $archive --files-from=-"
  run gcloud compute tpus tpu-vm scp "$archive" "$name:rlanything.tar.gz" "${where[@]}" --worker=all --quiet
  rm -f "$archive"
  on all "$remote_setup"
}

remote_setup="set -e
mkdir -p rlanything bucket
tar -xzf rlanything.tar.gz -C rlanything
if ! command -v python3.11 || ! command -v gcsfuse; then
  echo 'deb https://packages.cloud.google.com/apt gcsfuse-jammy main' | sudo tee /etc/apt/sources.list.d/gcsfuse.list
  curl -fsS https://packages.cloud.google.com/apt/doc/apt-key.gpg | sudo apt-key add -
  sudo apt-get update -qq
  sudo apt-get install -y -qq python3.11 python3.11-venv gcsfuse
fi
mountpoint -q bucket || gcsfuse --implicit-dirs $bucket bucket
cd rlanything && bash -c 'source launch/setup.sh tpu'"

train=$(printf '%q ' .venv/bin/python -m rlanything_jax.train "--workdir=../bucket/$name" "$@")
# Detached, so that a lost connection costs nothing; a run that goes on is left alone.
remote_start="cd rlanything && if ! kill -0 \$(cat ../train.pid 2>/dev/null) 2>/dev/null; then
  rm -f ../train.status
  nohup setsid bash -c $(printf '%q' "$train; echo \$? > ../train.status") > ../train.log 2>&1 < /dev/null &
  echo \$! > ../train.pid
fi"
# Ends with the run, and with its exit status.
# shellcheck disable=SC2016
remote_watch='tail -n +1 --pid=$(cat train.pid) -f train.log; exit $(cat train.status)'

interrupted=75 # the exit status of a run that saved and wants to go on, as rlanything_jax.parallel.preemption says
lost=0         # times in a row that a slice could not be reached although it is there
while true; do
  ensure_slice
  status=0
  { install && on all "$remote_start" && on 0 "$remote_watch"; } || status=$?
  if ((status == 0)); then break; fi
  if [[ $(state) != ACTIVE ]]; then
    echo "tpu_pod: the slice was taken away; a new one goes on from the last checkpoint" >&2
    lost=0
  elif ((status == interrupted)); then
    echo "tpu_pod: the run was interrupted and goes on from the last checkpoint" >&2
  elif ((status == 255 && ++lost < 10)); then
    echo "tpu_pod: the connection was lost" >&2
  else
    fail "the run failed with status $status; the slice is left as it is"
  fi
  sleep "$poll_s"
done
if [[ -n $results ]]; then
  run mkdir -p "$results"
  run gcloud storage rsync "gs://$bucket/$name" "$results" --recursive '--exclude=^checkpoints/.*'
fi
if ! $keep; then delete; fi
