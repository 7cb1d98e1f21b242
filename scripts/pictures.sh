#!/usr/bin/env bash
# Makes the pictures in docs/images again. Installs what it needs from Debian and PyPI; takes about ten minutes, most of them downloads.
# Usage: scripts/pictures.sh [report|perfetto|nsight|dashboard|request|monitor]…     all without an argument
#
# On a machine that is busy otherwise, pictures show that: times get long and uneven. PROGRAMS names a directory with our programs, if
# they are not to be built; RUN a run for the report and the trace, if none is to be made; WORK a directory for what is in between.
set -euo pipefail
root=$(cd "$(dirname "$0")/.." && pwd)
cd "$root"
wanted=("$@")
[ ${#wanted[@]} -gt 0 ] || wanted=(report perfetto nsight dashboard request monitor)
work=${WORK:-/tmp/candlescope-pictures}
images=docs/images
mkdir -p "$work" "$images"

packages=()
need() { # PROGRAM PACKAGE…
  command -v "$1" >/dev/null || packages+=("${@:2}")
}
need chromium chromium fonts-dejavu-core
need pngquant pngquant
need Xvfb xvfb
need xdotool xdotool
need import imagemagick
# What Qt and Mesa load into Nsight's window.
for package in libxcb-icccm4 libxcb-keysyms1 libxcb-cursor0 libgl1 libgl1-mesa-dri; do
  dpkg -s "$package" >/dev/null 2>&1 || packages+=("$package")
done
if [ ${#packages[@]} -gt 0 ]; then
  sudo=
  [ "$(id -u)" -eq 0 ] || sudo=sudo
  $sudo apt-get update -qq
  DEBIAN_FRONTEND=noninteractive $sudo apt-get install -y -qq --no-install-recommends "${packages[@]}" >/dev/null
fi

python=$work/venv/bin/python
if ! cmp -s scripts/pictures/requirements.txt "$work/venv/requirements.txt"; then
  python3 -m venv "$work/venv"
  "$python" -m pip install -q --disable-pip-version-check -r scripts/pictures/requirements.txt
  cp scripts/pictures/requirements.txt "$work/venv/requirements.txt"
fi
export MPLBACKEND=agg

programs=${PROGRAMS:-}
if [ -z "$programs" ]; then
  # The features of the tests, so that nothing is built anew after them.
  cargo build -q --workspace --features candlescope-tests/nvtx,candlescope-tests/services,candlescope-server/services
  programs=$root/target/debug
fi
model=$(tests/fetch-smollm2.sh)

# The run that the report and the trace are of.
run=${RUN:-$work/smollm2}
if [ -z "${RUN:-}" ]; then
  rm -rf "$run"
  # One thread: on a small machine that shares its cores, more threads wait for each other.
  RAYON_NUM_THREADS=1 "$programs/candlescope" profile --no-progress --model "$model" --prompt "The capital of France is" \
    --max-new-tokens 24 --ignore-eos --out "$run" >/dev/null
fi

for picture in "${wanted[@]}"; do
  raw=$work/$picture.png
  case $picture in
  report)
    "$python" scripts/pictures/browser.py report "$run" "$raw"
    ;;
  perfetto)
    [ -e "$run/trace.pftrace" ] || "$programs/candlescope" export perfetto "$run" >/dev/null
    "$python" scripts/pictures/browser.py perfetto "$run" "$raw"
    ;;
  nsight)
    scripts/pictures/nsight.sh "$programs" "$(tests/nsys/setup.sh)" "$work/nsight" "$raw"
    ;;
  dashboard)
    rm -rf "$work/prometheus"
    "$python" scripts/pictures/dashboard.py "$programs" "$(tests/services/prometheus.sh)" "$work/prometheus" "$raw"
    ;;
  request)
    "$python" scripts/pictures/request.py "$programs" "$model" "$(tests/otlp/jaeger.sh)" "$raw"
    ;;
  monitor)
    scripts/pictures/monitor.sh "$programs" "$model" "$images/monitor.svg"
    continue
    ;;
  *)
    echo "pictures.sh: no picture $picture: report, perfetto, nsight, dashboard, request or monitor" >&2
    exit 2
    ;;
  esac
  name=$picture
  [ "$picture" != request ] || name=jaeger-request
  pngquant --force --speed 1 --strip --output "$images/$name.png" 128 "$raw"
  size=$(stat -c %s "$images/$name.png")
  echo "$images/$name.png: $((size / 1000)) kB"
  [ "$size" -le 300000 ] || { echo "pictures.sh: $images/$name.png is above 300 kB" >&2; exit 1; }
done
