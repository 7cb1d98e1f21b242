#!/usr/bin/env bash
# Builds Grafana's server into .services/ (kept out of git), so that data sources, dashboards and their queries go through the real one.
# Usage: tests/services/grafana.sh    prints its home directory, with bin/grafana in it. The first time downloads 1 GB and takes about
# a quarter of an hour of two cores, after that nothing.
#
# Grafana's source is a Go module: this version of it, whose checksum is in Go's own database, is between 10.0 and 10.1.
# It is built without its front end: only the server is tested.
set -euo pipefail
module=github.com/grafana/grafana
version=v1.9.2-0.20230609164553-81d85ce8028d
sum=h1:nEQOIzFVY/zsD915THCfkl+HIvGW+AounbAQ61ejFcs=
here=$(cd "$(dirname "$0")" && pwd)
at=$(cd "$here/../.." && pwd)/.services/grafana

if [ "$(cat "$at/edition" 2>/dev/null)" = "$version" ]; then
  echo "$at"
  exit 0
fi
go=$("$here/go.sh")
# The Go that this version was made for; a later Go fetches it. The module files are incomplete, so they may be
# completed.
export GOTOOLCHAIN=go1.21.13 GOFLAGS="-mod=mod -trimpath"
rm -rf "$at"
mkdir -p "$at"
fetched=$(cd "$at" && "$go" mod download -json "$module@$version") || { echo "grafana.sh: $fetched" >&2; exit 1; }
said() { sed -n "s|^\t\"$1\": \"\(.*\)\",\?$|\1|p" <<<"$fetched"; }
[ "$(said Sum)" = "$sum" ] || { echo "grafana.sh: $module@$version is not what it was: $(said Sum)" >&2; exit 1; }
cp -r --no-preserve=mode "$(said Dir)" "$at/source"
cd "$at/source"
# The code that wires the server's parts together is generated and not part of the source.
nice -n 15 "$go" run github.com/google/wire/cmd/wire@v0.5.0 gen -tags oss ./pkg/server >&2
nice -n 15 "$go" build -tags oss -ldflags "-s -w" -o "$at/bin/grafana" ./pkg/cmd/grafana >&2
mv conf public "$at/"
cd "$at"
rm -rf source
echo "$version" >edition
echo "$at"
