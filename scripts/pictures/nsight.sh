#!/usr/bin/env bash
# Photographs Nsight Systems' own window with a profile that has our ranges; no GPU and no screen needed.
# Usage: scripts/pictures/nsight.sh PROGRAMS NSYS WORK PICTURE
# The tests' copy of Nsight Systems (.nsys) lacks the half of it that only windows need, so the package is unpacked here as a whole.
set -euo pipefail
programs=$1 nsys=$2 work=$3 picture=$4
mkdir -p "$work"
gui=$work/nsight/usr/lib/nsight-systems/host-linux-x64

if [ ! -x "$gui/nsys-ui.bin" ]; then
  # From the release that has it, as tests/nsys/setup.sh does, with lists of its own.
  mkdir -p "$work"/apt/{lists/partial,cache/archives/partial}
  echo "deb [arch=amd64 signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] http://deb.debian.org/debian trixie non-free" \
    >"$work/apt/sources.list"
  apt=(apt-get -o "Dir::Etc::SourceList=$work/apt/sources.list" -o Dir::Etc::SourceParts=- -o "Dir::State::Lists=$work/apt/lists"
    -o "Dir::Cache=$work/apt/cache" -o APT::Sandbox::User=root -o Acquire::Languages=none)
  "${apt[@]}" update -qq
  (cd "$work/apt" && "${apt[@]}" download -qq nsight-systems)
  dpkg -x "$work"/apt/nsight-systems_*.deb "$work/nsight"
  rm -rf "$work/apt" "$work/nsight/usr/share"
fi
# A link to a library that the tests' copy has.
cp -L --remove-destination "$(dirname "$nsys")/../host-linux-x64/libssh.so.4" "$gui/libssh.so.4"
ln -sf libssh.so.4 "$gui/libssh.so"

rm -rf "$work/run" "$work"/decode.*
"$nsys" profile -t nvtx --sample=none --cpuctxsw=none -o "$work/decode" "$programs/nvtx_llama" ours "$work/run" 6 >/dev/null

Xvfb -displayfd 1 -screen 0 1500x900x24 -nolisten tcp >"$work/display" 2>/dev/null &
screen=$!
window=
trap 'kill $window $screen 2>/dev/null || true' EXIT
for _ in $(seq 50); do [ -s "$work/display" ] && break; sleep 0.2; done
DISPLAY=:$(cat "$work/display")
export DISPLAY

# A home of its own, where the question whether usage data may be collected has been answered: no.
rm -rf "$work/home"
mkdir -p "$work/home/.config/NVIDIA Corporation"
printf '[CorePlugin.Privacy]\nAskedFor_NVIDIA%%20Nsight%%20Systems_=HasAsked\nCorePlugin.AllowAnalytics=false\n' \
  >"$work/home/.config/NVIDIA Corporation/NVIDIA Nsight Systems.ini"
HOME=$work/home LD_LIBRARY_PATH=$gui QT_PLUGIN_PATH=$gui/Plugins NV_AGORA_PATH=$gui NV_QUADD_PATH=$gui/nsys-ui.bin \
  LIBGL_ALWAYS_SOFTWARE=1 QTWEBENGINE_DISABLE_SANDBOX=1 "$gui/nsys-ui.bin" "$work/decode.nsys-rep" >"$work/window.log" 2>&1 &
window=$!

click() { # X Y [BUTTON]: and waits for what it leads to, for there is nothing to ask
  xdotool mousemove "$1" "$2"
  sleep 0.5
  xdotool click "${3:-1}"
  sleep 3
}
sleep 30
main=$(xdotool search --onlyvisible --name "NVIDIA Nsight Systems" | tail -n 1)
xdotool windowmove "$main" 0 0 windowsize "$main" 1500 900
sleep 3
click 331 36      # closes the list of projects
click 120 190 3   # the row of our ranges on the main thread …
click 200 352     # … is shown in the events view
click 250 671     # the fifth step …
click 250 671 3
click 350 682     # … is zoomed to
click 128 671     # and unfolded,
click 147 695     # as is its first block;
click 230 796     # of that, the MLP is selected
xdotool mousemove 1100 560
sleep 2
# Without the menu and the empty status bar.
import -window root -crop 1500x845+0+22 +repage "$picture"
