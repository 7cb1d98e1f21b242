#!/usr/bin/env bash
# Puts libfaketime into .services/ (kept out of git): with it a test sets the clock of a single process.
# Usage: tests/services/faketime.sh    prints the path of the library. Running it again costs nothing.
#
# It comes from Debian's package, which is only unpacked. Elsewhere: name libfaketimeMT.so.1 in CANDLESCOPE_FAKETIME.
set -euo pipefail
cache=$(cd "$(dirname "$0")/../.." && pwd)/.services
there() { compgen -G "$cache/faketime/usr/lib/*/faketime/libfaketimeMT.so.1" || true; }

library=${CANDLESCOPE_FAKETIME:-$(there)}
if [ -n "$library" ]; then
  echo "$library"
  exit 0
fi
if ! command -v apt-get >/dev/null || ! command -v dpkg >/dev/null; then
  echo "faketime.sh: no Debian-like system: name libfaketimeMT.so.1 in CANDLESCOPE_FAKETIME" >&2
  exit 1
fi
"$(dirname "$0")/unpack-deb.sh" libfaketime "$cache/faketime"
there
