#!/bin/sh
# Makes .venv with the Python readers that tests check our files with, and with what runs the notebooks. Does nothing if
# it is up to date.
set -eu
root=$(cd "$(dirname "$0")/../.." && pwd)
requirements="$root/tests/python/requirements.txt"
venv="$root/.venv"
stamp="$venv/requirements.txt"

if [ -f "$stamp" ] && cmp -s "$requirements" "$stamp"; then
    exit 0
fi
if ! command -v python3 >/dev/null; then
    echo "venv.sh: python3 is not installed; tests that read our files with DuckDB, Polars and Perfetto, and the notebooks', are skipped" >&2
    exit 3
fi
if ! python3 -m venv "$venv"; then
    echo "venv.sh: python3 cannot make a virtual environment; on Debian and Ubuntu install python3-venv" >&2
    exit 3
fi
if ! "$venv/bin/python" -m pip install --quiet --disable-pip-version-check --requirement "$requirements"; then
    echo "venv.sh: pip could not install $requirements; is the package index reachable?" >&2
    exit 3
fi
cp "$requirements" "$stamp"
