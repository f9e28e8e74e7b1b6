#!/bin/sh
# Three linters, all of them to the end: sh check_loads.sh src tests
# The third finds what the first two miss. Any finding fails the build.
if [ $# -eq 0 ]; then
    echo "Name the folders that have the code: sh check_loads.sh src" >&2
    exit 2
fi
failed=0
ruff check --no-cache "$@" || failed=1
bandit --quiet --configfile pyproject.toml --recursive "$@" || failed=1
safepoint lint "$@" || failed=1
exit $failed
