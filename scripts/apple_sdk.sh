#!/usr/bin/env bash
# What it takes to link programs for macOS on Apple's processors where Apple's SDK is not, in the folder DIR: the names of
# libSystem, as zig has them, stubs of the other libraries of macOS that our program is linked with, and zig's C compiler by
# the words that crates give one. Stubs name what is asked for and hold no code: on macOS the real libraries are loaded. A
# symbol that the linker misses wants its name in a line here.
# Usage: eval "$(scripts/apple_sdk.sh DIR)"     [zig is found on PATH, or named by ZIG; the lines are settings of cargo]
set -Eeuo pipefail
trap 'echo "error: scripts/apple_sdk.sh, line $LINENO: $BASH_COMMAND" >&2' ERR
mkdir -p "$1"
dir=$(cd "$1" && pwd)
zig=${ZIG:-zig}
if ! command -v "$zig" >/dev/null 2>&1; then
  echo "error: zig is not installed: pip install ziglang, then ZIG=python-zig" >&2
  exit 1
fi
facts=$("$zig" env)
program=$(sed -n 's/.*zig_exe"* *[=:] *"\(.*\)".*/\1/p' <<< "$facts")
library=$(sed -n 's/.*lib_dir"* *[=:] *"\(.*\)".*/\1/p' <<< "$facts")/libc/darwin/libSystem.tbd
if ! [ -x "$program" ] || ! [ -e "$library" ]; then
  echo "error: $zig does not say where it is, or has no $library" >&2
  exit 1
fi
# The oldest macOS on these processors, which Rust's programs start on, too.
macos=11.0

sdk=$dir/sdk
rm -rf "$sdk"
mkdir -p "$sdk/usr/lib"
# Apple's lists name newer kinds of arm64 alone, whose names are the same; of these the linker does not know all.
sed -e 's/, *arm64e\.[a-z0-9]*-[a-z]*//g' -e 's/arm64e\.[a-z0-9]*-macos/arm64-macos/g' -e 's/arm64e-macos/arm64-macos/g' \
  "$library" > "$sdk/usr/lib/libSystem.tbd"
for part in c m; do ln -s libSystem.tbd "$sdk/usr/lib/lib$part.tbd"; done

# stub PLACE-IN-THE-SDK NAME-ON-MACOS SYMBOL…
stub() {
  local at=$sdk/$1 name=$2 symbols
  shift 2
  symbols=$(IFS=,; echo "$*")
  mkdir -p "$(dirname "$at")"
  cat > "$at" <<TBD
--- !tapi-tbd
tbd-version: 4
targets: [ arm64-macos ]
install-name: '$name'
exports:
  - targets: [ arm64-macos ]
    symbols: [ ${symbols//,/, } ]
...
TBD
}
# framework NAME VERSION SYMBOL…
framework() {
  local at=System/Library/Frameworks/$1.framework name=$1 version=$2
  shift 2
  stub "$at/$name.tbd" "/$at/Versions/$version/$name" "$@"
}
# The system's certificates, which TLS trusts.
framework CoreFoundation A _CFArrayCreate _CFArrayGetCount _CFArrayGetValueAtIndex _CFDataGetBytePtr _CFDataGetLength \
  _CFDictionaryGetValueIfPresent _CFEqual _CFNumberGetValue _CFRelease _CFRetain _CFStringCreateWithBytesNoCopy _CFStringGetBytes \
  _CFStringGetCStringPtr _CFStringGetLength _kCFAllocatorDefault _kCFAllocatorNull _kCFTypeArrayCallBacks
framework Security A _SecCertificateCopyData _SecCopyErrorMessageString _SecTrustSettingsCopyCertificates \
  _SecTrustSettingsCopyTrustSettings
# Named by crates whose part of them we do not use.
framework Foundation C
stub usr/lib/libobjc.tbd /usr/lib/libobjc.A.dylib
stub usr/lib/libiconv.tbd /usr/lib/libiconv.2.dylib

# Crates name targets as Apple's clang does, zig has names of its own. Its checks of undefined behaviour would need a library
# that is not linked.
cat > "$dir/cc" <<CC
#!/usr/bin/env bash
args=()
while [ \$# -gt 0 ]; do
  case \$1 in
    --target=* | -mmacosx-version-min=* | -mmacos-version-min=*) ;;
    -target | -arch | -isysroot) shift ;;
    *) args+=("\$1") ;;
  esac
  shift
done
exec "$program" cc -target aarch64-macos.$macos -fno-sanitize=undefined "\${args[@]}"
CC
printf '#!/usr/bin/env bash\nexec "%s" ar "$@"\n' "$program" > "$dir/ar"
chmod +x "$dir/cc" "$dir/ar"

# Rust comes with a linker that knows macOS, and signs what it has linked, without which these processors start nothing.
cat <<SET
export SDKROOT='$sdk' MACOSX_DEPLOYMENT_TARGET=$macos
export CC_aarch64_apple_darwin='$dir/cc' AR_aarch64_apple_darwin='$dir/ar'
export CARGO_TARGET_AARCH64_APPLE_DARWIN_LINKER=rust-lld
export CARGO_TARGET_AARCH64_APPLE_DARWIN_RUSTFLAGS='-Clinker-flavor=ld64.lld'
SET
