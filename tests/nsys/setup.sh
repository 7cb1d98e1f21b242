#!/usr/bin/env bash
# Puts NVIDIA's Nsight Systems into .nsys/ (kept out of git), so that tests run under the real tool on any machine, GPU or not.
# Usage: tests/nsys/setup.sh       prints the path of nsys. Running it again costs nothing.
#
# It comes from Debian's non-free component, about 190 MB to download and 400 MB on disk. Installing the package would
# require a driver, so it is only unpacked; neither root nor a change to the system's own apt sources is needed. On
# systems other than x86-64 with apt, tests use the nsys on the PATH or in CANDLESCOPE_NSYS, and say so if there is
# none.
set -euo pipefail
root=$(cd "$(dirname "$0")/../.." && pwd)
cache=$root/.nsys
nsys=$cache/nsight-systems/target-linux-x64/nsys
# Changes whenever the result of this script would change.
edition="nsight-systems 2023.4, layout 1"

if [ -f "$cache/edition" ] && [ "$(cat "$cache/edition")" = "$edition" ]; then
  echo "$nsys"
  exit 0
fi
if [ "$(uname -sm)" != "Linux x86_64" ] || ! command -v apt-get >/dev/null || ! command -v dpkg >/dev/null; then
  echo "nsys/setup.sh: SKIPPED: not a Debian-like x86-64 system; tests under nsys run only with one on the PATH or in CANDLESCOPE_NSYS" >&2
  exit 0
fi

work=$cache/setup.$$
rm -rf "$cache"
mkdir -p "$work"/{lists/partial,cache/archives/partial,debs,root}
trap 'rm -rf "$work"' EXIT
cd "$work/debs"

keyring=/usr/share/keyrings/debian-archive-keyring.gpg
if [ ! -e "$keyring" ]; then
  # Ubuntu and others have Debian's keys as a package.
  apt-get download -qq debian-archive-keyring || {
    echo "nsys/setup.sh: Debian's keys are missing: install the package debian-archive-keyring" >&2
    exit 1
  }
  dpkg -x debian-archive-keyring_*.deb "$work/keys"
  keyring=$work/keys/usr/share/keyrings/debian-archive-keyring.gpg
fi
mirror=${DEBIAN_MIRROR:-http://deb.debian.org/debian}
# The tool from the release that has it; libraries from the one before, because those run on newer systems but not the other
# way round.
printf 'deb [arch=amd64 signed-by=%s] %s %s\n' \
  "$keyring" "$mirror" "trixie non-free" "$keyring" "$mirror" "bookworm main" >"$work/sources.list"
private=(
  -o "Dir::Etc::SourceList=$work/sources.list" -o Dir::Etc::SourceParts=-
  -o "Dir::State::Lists=$work/lists" -o "Dir::Cache=$work/cache"
  # As root, apt would download as a user who may not write here.
  -o APT::Sandbox::User=root
  -o Acquire::Languages=none -o Acquire::IndexTargets::deb::DEP-11::DefaultEnabled=false -o Acquire::Retries=3
)
fetch() { # PACKAGE…: unpacks them into $work/root
  apt-get "${private[@]}" download -qq "$@" >&2
  for deb in ./*.deb; do
    dpkg -x "$deb" "$work/root"
    rm "$deb"
  done
}
rm -f ./*.deb
echo "nsys/setup.sh: fetching Nsight Systems from $mirror (190 MB)" >&2
apt-get "${private[@]}" update -qq >&2
fetch nsight-systems nsight-systems-target libssh-4

# nsys looks for its importer beside its own real directory, which does not work with Debian's layout of links.
tool=$work/nsight-systems
mkdir "$tool"
mv "$work/root/usr/lib/nsight-systems/host-linux-x64" "$tool/"
mv "$work/root/usr/lib/x86_64-linux-gnu/nsight-systems/target-linux-x64" "$tool/"
host=$tool/host-linux-x64
# The graphical interface and its translations are half the size and are not needed here.
rm -rf "$host"/libQt6WebEngine* "$host/translations" "$host/resources"

# Libraries that the system lacks are put beside the tool's own, where its programs look first.
adopt() { # LIBRARY: copies it from what was unpacked, under the name it is asked by
  found=$(find "$work/root" -name "$1" | head -n 1)
  [ -n "$found" ] || return 1
  for directory in "$tool"/*; do
    cp -L --remove-destination "$found" "$directory/$1"
  done
}
adopt libssh.so.4
ln -sf libssh.so.4 "$host/libssh.so"
lacking() {
  for file in "$host"/{QdstrmImporter,libexporter.so,libAnalysis.so} "$tool"/target-linux-x64/{nsys,libToolsInjection64.so}; do
    LD_LIBRARY_PATH=$host ldd "$file" 2>/dev/null || true
  done | awk '/not found/ { print $1 }' | sort -u
}
for _ in 1 2 3; do
  for library in $(lacking); do
    case $library in
    libgssapi_krb5.so.2) package=libgssapi-krb5-2 ;;
    libkrb5.so.3) package=libkrb5-3 ;;
    libk5crypto.so.3) package=libk5crypto3 ;;
    libkrb5support.so.0) package=libkrb5support0 ;;
    libcom_err.so.2) package=libcom-err2 ;;
    libkeyutils.so.1) package=libkeyutils1 ;;
    libcrypto.so.3 | libssl.so.3) package=libssl3 ;;
    libelf.so.1) package=libelf1 ;;
    libdw.so.1) package=libdw1 ;;
    libpfm.so.4) package=libpfm4 ;;
    libsqlite3.so.0) package=libsqlite3-0 ;;
    libstdc++.so.6) package=libstdc++6 ;;
    libgcc_s.so.1) package=libgcc-s1 ;;
    libz.so.1) package=zlib1g ;;
    *) continue ;;
    esac
    fetch "$package"
    adopt "$library" || true
  done
done
still=$(lacking)
if [ -n "$still" ]; then
  echo "nsys/setup.sh: nsys lacks these libraries, install their packages: $still" >&2
fi
"$tool/target-linux-x64/nsys" --version >&2

mv "$tool" "$cache/"
echo "$edition" >"$cache/edition"
echo "$nsys"
