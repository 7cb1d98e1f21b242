#!/usr/bin/env bash
# Builds Jaeger into .services/ (kept out of git), so that the OTLP exporter is tested against the real one.
# Usage: tests/otlp/jaeger.sh    prints the program. The first time takes about five minutes on two cores, after that nothing.
#
# The module in tests/otlp/jaeger pins Jaeger and all its dependencies. If there is no Go, name a Jaeger v2 in
# CANDLESCOPE_JAEGER.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
cache=$(cd "$here/../.." && pwd)/.services
# Changes whenever the build would change.
edition=$(cat "$here/jaeger/go.mod" "$here/jaeger/go.sum" | cksum)

if [ -n "${CANDLESCOPE_JAEGER:-}" ]; then
  [ -x "$CANDLESCOPE_JAEGER" ] || { echo "jaeger.sh: CANDLESCOPE_JAEGER is no program: $CANDLESCOPE_JAEGER" >&2; exit 1; }
  echo "$CANDLESCOPE_JAEGER"
  exit 0
fi
if [ -x "$cache/jaeger/jaeger" ] && [ "$(cat "$cache/jaeger/edition" 2>/dev/null)" = "$edition" ]; then
  echo "$cache/jaeger/jaeger"
  exit 0
fi

go=$("$here/../services/go.sh")
mkdir -p "$cache/jaeger"
cd "$here/jaeger"
# This Go builds, whatever its version, with the module files as they are.
GOTOOLCHAIN=local GOFLAGS="-mod=readonly -trimpath" nice -n 15 "$go" build -ldflags "-s -w" \
  -o "$cache/jaeger/jaeger" github.com/jaegertracing/jaeger/cmd/jaeger >&2
echo "$edition" >"$cache/jaeger/edition"
echo "$cache/jaeger/jaeger"
