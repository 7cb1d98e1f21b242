#!/usr/bin/env bash
# Makes sure that what the build needs besides Rust is there: a C compiler (zstd), and for the tests Python with venv and libclang
# (NVTX's bindings are generated from its headers) and valgrind (the hot path's instructions are counted). `candle-onnx` is what
# the feature of that name needs: protoc, the one on the PATH or the one that PROTOC names.
# On Debian and its kin it installs what is missing; elsewhere it says what to install.
# Usage: scripts/setup.sh [build|test|candle-onnx]
set -euo pipefail
what=${1:-build}
missing=()
command -v cc >/dev/null 2>&1 || missing+=(build-essential)
if [ "$what" = test ]; then
  command -v python3 >/dev/null 2>&1 || missing+=(python3)
  python3 -c 'import venv, ensurepip' >/dev/null 2>&1 || missing+=(python3-venv)
  command -v valgrind >/dev/null 2>&1 || missing+=(valgrind)
  # The library, and the headers that a C compiler brings along: bindgen needs both.
  clang=$(compgen -G '/usr/lib/llvm-*/lib/libclang[.-][0-9s]*' || compgen -G '/usr/lib*/libclang.so*' || true)
  headers=$(compgen -G '/usr/lib/llvm-*/lib/clang/*/include/stddef.h' || compgen -G '/usr/lib*/clang/*/include/stddef.h' || true)
  [ -n "${LIBCLANG_PATH:-}" ] || { [ -n "$clang" ] && [ -n "$headers" ]; } || missing+=(libclang-dev)
fi
if [ "$what" = candle-onnx ]; then
  command -v "${PROTOC:-protoc}" >/dev/null 2>&1 || missing+=(protobuf-compiler)
fi
# A disk that is full ends a linker by a signal, which says nothing of disks. What is built already needs its room no more.
needed=4
[ "$what" = test ] && needed=20
here=$(cd "$(dirname "$0")/.." && pwd)
free=$(df -Pk "$here" | awk 'NR == 2 { print int($4 / 1048576) }')
if [ ! -d "$here/target/debug/deps" ] && [ "${free:-$needed}" -lt "$needed" ]; then
  echo "warning: $free GiB are free here, and what is built takes up to $needed: if a linker ends by a signal, the disk is full" >&2
fi
command -v cargo >/dev/null 2>&1 || { echo "error: cargo is not on the PATH: install Rust with rustup first" >&2; exit 1; }
[ ${#missing[@]} -eq 0 ] && exit 0
if ! command -v apt-get >/dev/null 2>&1; then
  echo "error: please install ${missing[*]} (Debian's names) with this system's package manager" >&2
  exit 1
fi
sudo=
[ "$(id -u)" -eq 0 ] || sudo=sudo
$sudo apt-get update -qq
DEBIAN_FRONTEND=noninteractive $sudo apt-get install -y -qq --no-install-recommends "${missing[@]}" >/dev/null
