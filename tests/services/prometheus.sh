#!/usr/bin/env bash
# Puts Prometheus and promtool into .services/ (kept out of git), so that tests run against the real server.
# Usage: tests/services/prometheus.sh    prints the directory that holds both programs. Running it again costs nothing.
#
# They come from Debian's package, 19 MB to download, which is only unpacked: neither root nor a running service is needed.
# Elsewhere the tests use the programs in CANDLESCOPE_PROMETHEUS (a directory) or on the PATH.
set -euo pipefail
root=$(cd "$(dirname "$0")/../.." && pwd)
cache=$root/.services
bin=$cache/prometheus/usr/bin

for there in "${CANDLESCOPE_PROMETHEUS:-}" "$bin"; do
  if [ -n "$there" ] && [ -x "$there/prometheus" ] && [ -x "$there/promtool" ]; then
    echo "$there"
    exit 0
  fi
done
if command -v prometheus >/dev/null && command -v promtool >/dev/null; then
  dirname "$(command -v prometheus)"
  exit 0
fi
if ! command -v apt-get >/dev/null || ! command -v dpkg >/dev/null; then
  echo "prometheus.sh: no Debian-like system: put prometheus and promtool on the PATH, or name their directory in CANDLESCOPE_PROMETHEUS" >&2
  exit 1
fi

"$(dirname "$0")/unpack-deb.sh" prometheus "$cache/prometheus"
"$bin/prometheus" --version 2>&1 | head -n 1 >&2
echo "$bin"
