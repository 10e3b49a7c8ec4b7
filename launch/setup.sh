# shellcheck shell=bash
# Sourced by the launchers: goes to the repository root, prepares .venv with the given extras and activates it.
#
#     source launch/setup.sh EXTRAS        names from pyproject.toml, separated by commas; "" for none
#
# Needs Python only. An installation is repeated when requirements.txt, pyproject.toml or the folder's own path
# changed since the last one that succeeded with these extras.

set -euo pipefail
CDPATH='' cd "$(dirname "${BASH_SOURCE[0]}")/.."

# Prints the newest Python on PATH that the pinned requirements support and that can create environments.
find_python() {
  local name
  for name in python3.14 python3.13 python3.12 python3.11 python3 python; do
    if "$name" -c 'import sys, ensurepip, venv; sys.exit(not (3, 11) <= sys.version_info[:2] <= (3, 14))' \
      </dev/null >/dev/null 2>&1; then
      echo "$name"
      return
    fi
  done
  echo "error: no Python 3.11 to 3.14 with the modules venv and ensurepip on PATH (python3 here:" \
    "$(python3 --version 2>&1 || echo none)). Install one, for example: apt-get install python3 python3-venv" >&2
  return 1
}

install_requirements() {
  local extras=$1 python stamp state
  stamp=".venv/installed-${extras:-core}"
  state=$({ echo "$PWD" && cat requirements.txt pyproject.toml; } | cksum)
  if [[ -x .venv/bin/python && -f $stamp && $(<"$stamp") == "$state" ]]; then
    return
  fi
  if ! .venv/bin/python -c 'import sys, pip; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1; then
    python=$(find_python)
    echo "setup: creating .venv with $("$python" --version)"
    "$python" -m venv --clear .venv
  fi
  echo "setup: installing requirements.txt${extras:+ and the extras [$extras]} into .venv (minutes the first time)"
  .venv/bin/python -m pip install --quiet --disable-pip-version-check --requirement requirements.txt \
    --editable ".${extras:+[$extras]}" </dev/null
  echo "$state" >"$stamp"
}

# Large buffers from transparent huge pages, never returned to the kernel: a train step then costs about a quarter
# less CPU time, most of it page faults. glibc reads this when a process starts, so Python cannot set it itself.
tune_allocator() {
  if getconf GNU_LIBC_VERSION >/dev/null 2>&1; then
    export GLIBC_TUNABLES="${GLIBC_TUNABLES:-glibc.malloc.hugetlb=1:glibc.malloc.mmap_max=0:glibc.malloc.trim_threshold=100000000000}"
  fi
}

install_requirements "$1"
tune_allocator
export PATH="$PWD/.venv/bin:$PATH"
