#!/usr/bin/env bash
# Checks style and types, then runs the tests.
#
#     launch/test.sh [pytest arguments]

# shellcheck source-path=SCRIPTDIR source=setup.sh
source "$(dirname "${BASH_SOURCE[0]}")/setup.sh" dev

echo "test: ruff"
ruff check .
echo "test: mypy"
mypy
echo "test: pytest"
pytest "$@"
