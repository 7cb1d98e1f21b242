#!/usr/bin/env bash
# Asks runs, archives or a folder of these on a cluster of workers on this machine: Sail, which takes Spark's SQL and needs no JVM.
#
#   examples/fleet/cluster.sh /data/candlescope 'SELECT * FROM operators ORDER BY self_ns DESC LIMIT 20'
#
# WORKERS says how many there are (4). CANDLESCOPE names the command, PYTHON one that has pysail and pyspark-client; without it
# they are installed into ~/.cache/candlescope/sail.
set -euo pipefail
[ $# -ge 2 ] || { sed -n '2,7s/^# \{0,1\}//p' "$0" >&2; exit 2; }
places=("${@:1:$#-1}")
sql=${*: -1}
workers=${WORKERS:-4}
python=${PYTHON:-}
if [ -z "$python" ]; then
  at=${XDG_CACHE_HOME:-$HOME/.cache}/candlescope/sail
  [ -x "$at/bin/python" ] || python3 -m venv "$at"
  "$at/bin/python" -c 'import pysail, pyspark' 2>/dev/null || "$at/bin/pip" install -q 'pysail==0.7.2' 'pyspark-client==4.2.0' >&2
  python=$at/bin/python
fi
views=$(mktemp)
trap 'rm -f "$views"' EXIT
"${CANDLESCOPE:-candlescope}" views spark "${places[@]}" >"$views"
SAIL_MODE=local-cluster SAIL_CLUSTER__WORKER_INITIAL_COUNT=$workers SAIL_CLUSTER__WORKER_MAX_COUNT=$workers RUST_LOG=${RUST_LOG:-error} \
  "$python" -W ignore "$(dirname "$0")/question.py" "$views" "$sql"
