# Starts of programs under `candlescope record`, of which those that fail keep what they said; for scripts that source it, which set
# $cs (the command) and $out (a folder), and may set GRACE, seconds from asking a program to end to ending it (5). A debugger, if there is
# one, says where a program crashed: GDB (default: gdb, else cuda-gdb).
# shellcheck shell=bash

# Starts have folders of their own.
out=$(realpath -m "$out")
[ ! -e "$cs" ] || cs=$(realpath "$cs")
if [ -n "${CANDLESCOPE_INJECT_LIBRARY:-}" ]; then
  CANDLESCOPE_INJECT_LIBRARY=$(realpath -m "$CANDLESCOPE_INJECT_LIBRARY")
  export CANDLESCOPE_INJECT_LIBRARY
fi

# NAME N SECONDS COMMAND…: starts the command so often, for so many seconds at most, each recorded with RECORD (options, an array) in
# $out/start-NAME-*. FAILED_STARTS is then how many of ALL_STARTS failed so far, in all; the texts of those that did are in $out/failed.
# After three that did not end in time no more are started: each would take as long. Where the first five crashed is asked of a debugger.
FAILED_STARTS=0 ALL_STARTS=0
started() {
  local name=$1 n=$2 seconds=$3 start=0 status log run here failed=0 late=0 core said
  shift 3
  mkdir -p "$out/failed"
  rm -rf "$out"/start-"$name"-* "$out/failed/$name"-*
  for start in $(seq "$n"); do
    log=$out/failed/$name-$start.txt run=$out/start-$name-$start
    here=$(mktemp -d) said=$(dmesg 2>/dev/null | wc -l)
    # In a folder of its own, where a core would be.
    (cd "$here" && ulimit -c unlimited 2>/dev/null; exec timeout -k "${GRACE:-5}" "$seconds" "$cs" record --out "$run" ${RECORD[@]+"${RECORD[@]}"} -- "$@") >"$log" 2>&1
    status=$?
    ALL_STARTS=$((ALL_STARTS + 1))
    if [ $status = 0 ]; then
      rm -rf "$log" "$here"
      continue
    fi
    failed=$((failed + 1))
    {
      echo "== start $start of $n: status $status ($(meaning_of $status)): $*"
      find "$run" "$run.recording" -maxdepth 2 -printf '%p %s\n' 2>/dev/null | head -30
      for core in "$here"/core*; do [ -f "$core" ] && [ $failed -le 5 ] && stack_of "$core" "$1"; done
      dmesg 2>/dev/null | tail -n +$((said + 1)) | grep -E 'NVRM|Xid|segfault|traps:|oom' | tail -n 5
    } >>"$log" 2>&1
    rm -rf "$here"
    echo "  FAILED $name, start $start: status $status ($(meaning_of $status)); $log"
    # All are kept; the first ones are shown.
    [ $failed -gt 3 ] || tail -n 60 "$log" | cut -c1-240 | sed 's/^/    | /'
    case $status in 124 | 137) late=$((late + 1)) ;; esac
    [ $late -lt 3 ] || { echo "  $name: given up, because $late starts did not end in $seconds s"; break; }
  done
  FAILED_STARTS=$((FAILED_STARTS + failed))
  echo "  $name: $failed of $start starts failed"
}

# STATUS
meaning_of() {
  case $1 in
    124 | 137) echo "it did not end in time, or was killed" ;;
    129 | 1[3-9][0-9]) echo "signal $(kill -l $(($1 - 128)) 2>/dev/null)" ;;
    *) echo "its own" ;;
  esac
}

# CORE PROGRAM
stack_of() {
  local gdb=${GDB:-$(command -v gdb || command -v cuda-gdb || ls /usr/local/cuda/bin/cuda-gdb 2>/dev/null)}
  if [ -n "$gdb" ]; then
    timeout 90 "$gdb" -q -batch -ex 'bt 24' -ex 'thread apply all bt 12' "$(readlink -f "$(command -v "$2")")" "$1" 2>/dev/null | grep -E '^(Thread|#|Program)' | head -150
  else
    echo "a core of $(stat -c %s "$1") bytes, and no debugger"
  fi
}

# NAME OF: of the runs of NAME's starts, how many kernels each has, of OF, and how many starts had so many.
kernels_of_starts() {
  local run
  echo "  kernels of each start of $1, of $2, and how many starts had so many:"
  for run in "$out"/start-"$1"-*; do
    [ -f "$run/run.json" ] || continue
    "$cs" query "SELECT count(*) AS n FROM kernels WHERE kind = 'kernel'" "$run" --format csv 2>/dev/null | tail -n 1
  done | sort -n | uniq -c
}
