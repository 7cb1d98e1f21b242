#!/usr/bin/env bash
# llama.cpp's server for x86-64, whatever the system's own C library: prints the path of a program that runs it.
#
#   tests/peers/llama-server.sh        the first time it downloads about 15 MB from Debian; again it costs nothing
#
# Debian builds it in sid only, against a newer libc than releases have, so the packages are unpacked together with that
# libc and run by its own loader; the system is left as it is, and no root is needed. It goes into PEERS (target/peers).
set -euo pipefail
cd "$(dirname "$0")/../.."
mkdir -p "${PEERS:-target/peers}"
into=$(realpath "${PEERS:-target/peers}")/llama.cpp
server=$into/llama-server

if [ -x "$server" ] && "$server" --version >/dev/null 2>&1; then
    echo "$server"
    exit 0
fi
if [ "$(uname -sm)" != "Linux x86_64" ] || ! command -v apt-get >/dev/null || ! command -v dpkg >/dev/null; then
    echo "llama-server.sh: this needs a Debian-like x86-64 system; elsewhere name a running server with URL" >&2
    exit 1
fi
work=$into.$$
rm -rf "$work"
mkdir -p "$work"/{lists/partial,cache/archives/partial,debs,root}
trap 'rm -rf "$work"' EXIT
cd "$work/debs"

keyring=/usr/share/keyrings/debian-archive-keyring.gpg
if [ ! -e "$keyring" ]; then
    # Ubuntu and others have Debian's keys as a package.
    apt-get download -qq debian-archive-keyring
    dpkg -x debian-archive-keyring_*.deb "$work/keys"
    keyring=$work/keys$keyring
    rm ./*.deb
fi
printf 'deb [arch=amd64 signed-by=%s] %s sid main\n' \
    "$keyring" "${DEBIAN_MIRROR:-http://deb.debian.org/debian}" >"$work/sources.list"
private=(
    -o "Dir::Etc::SourceList=$work/sources.list" -o Dir::Etc::SourceParts=-
    -o "Dir::State::Lists=$work/lists" -o "Dir::Cache=$work/cache"
    # As root, apt would download as a user who may not write here.
    -o APT::Sandbox::User=root
    -o Acquire::Languages=none -o Acquire::IndexTargets::deb::DEP-11::DefaultEnabled=false -o Acquire::Retries=3
)
apt-get "${private[@]}" update -qq >&2
apt-get "${private[@]}" download -qq \
    llama.cpp-tools libllama0 libggml0 libc6 libgcc-s1 libgomp1 libstdc++6 libssl3t64 zlib1g libzstd1 >&2
for deb in ./*.deb; do dpkg -x "$deb" "$work/root"; done
rm -rf "$work"/{lists,cache,debs,keys}
cd "$work"

# ggml looks for its backends, one for each kind of CPU, beside the program that runs, which here is the loader.
libraries=root/usr/lib/x86_64-linux-gnu
for backend in "$libraries"/ggml/backends*/libggml-*.so; do
    ln -s "$(realpath --relative-to="$libraries" "$backend")" "$libraries/"
done
cat >llama-server <<'SH'
#!/bin/sh
root=$(dirname "$(readlink -f "$0")")/root
libraries=$root/usr/lib/x86_64-linux-gnu
exec "$libraries/ld-linux-x86-64.so.2" --library-path "$libraries" "$root/usr/bin/llama-server" "$@"
SH
chmod +x llama-server
./llama-server --version >&2
rm -rf "$into"
mv "$work" "$into"
echo "$server"
