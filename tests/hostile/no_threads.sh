#!/bin/sh
# Limits the number of threads to each possible value: the program goes on or says what to do, nothing panics, and a
# session that could not start leaves no run behind. Needs root, to become a user whose threads are limited (root's are
# not), and the built command line.
set -eu
cd "$(dirname -- "$0")/../.."
bin=${1:-target/debug/candlescope}
if [ "$(id -u)" != 0 ]; then echo "no_threads: not root, so nothing was tried"; exit 0; fi
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
chmod 777 "$work"
cp "$bin" "$work/candlescope"
failed=0 started=0 refused=0
for limit in 2 3 4 5 6 7 8 10 12; do
    run=$work/run-$limit
    status=0
    # A user of its own for each: the limit counts all threads of a user.
    RAYON_NUM_THREADS=1 setpriv --reuid $((61000 + limit)) --regid 65534 --clear-groups prlimit --nproc=$limit \
        timeout 120 "$work/candlescope" profile --model embedded --out "$run" --max-new-tokens 2 --repeats 1 --warmup 0 \
        >"$work/out" 2>"$work/err" || status=$?
    if [ $status = 0 ]; then
        started=$((started + 1))
    else
        refused=$((refused + 1))
        if [ -d "$run" ] && [ -n "$(ls -A "$run")" ] && ! grep -q complete "$run/run.json"; then echo "limit $limit: $run is left behind"; failed=1; fi
        if ! grep -q "ulimit -u" "$work/err"; then echo "limit $limit: no remedy: $(cat "$work/err")"; failed=1; fi
    fi
    if grep -q "panicked at" "$work/err"; then echo "limit $limit: a panic: $(cat "$work/err")"; failed=1; fi
done
echo "no_threads: $started runs, $refused refused with a remedy, failures: $failed"
exit $failed
