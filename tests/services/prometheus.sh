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

mkdir -p "$cache"
work=$(mktemp -d "$cache/prometheus.XXXXXX")
trap 'rm -rf "$work"' EXIT
cd "$work"
# As root, apt would download as a user who may not write here.
fetch() { apt-get -o APT::Sandbox::User=root -o Acquire::Retries=3 download -qq prometheus >&2; }
if ! fetch 2>/dev/null; then
  # A fresh image has no package lists. Ours are private, so that no root is needed.
  mkdir -p lists/partial archives/partial
  private=(-o "Dir::State::Lists=$work/lists" -o "Dir::Cache=$work" -o APT::Sandbox::User=root -o Acquire::Languages=none)
  apt-get "${private[@]}" update -qq >&2
  apt-get "${private[@]}" -o Acquire::Retries=3 download -qq prometheus >&2
fi
dpkg -x prometheus_*.deb unpacked
rm -rf "$cache/prometheus"
mv unpacked "$cache/prometheus"
"$bin/prometheus" --version 2>&1 | head -n 1 >&2
echo "$bin"
