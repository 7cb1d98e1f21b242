#!/usr/bin/env bash
# Archives of the command line, as a release has them: `dist/candlescope-VERSION-TARGET.tar.gz` with the program, what `record` loads
# into other programs (gnu), completions, manual pages, a bill of materials (CycloneDX) and licences, and `dist/SHA256SUMS`. Each
# program is tried before it is packed; the static one in an empty root directory, those of other machines with Wine or QEMU where
# these are there. What was not tried is said: a program for macOS that was made on Linux is looked at (scripts/macho.py), and not run.
# Usage: scripts/dist.sh [TARGET…]     [default: this machine's own, and on Linux the static one of musl beside it]
# On Linux Debian's cross compilers make x86_64-pc-windows-gnu and aarch64-unknown-linux-gnu as well, and zig aarch64-apple-darwin
# (scripts/apple_sdk.sh). OUT=DIR chooses another folder, which may hold what an earlier start left there and nothing else
# (scripts/dist_folder.sh). SOURCE_DATE_EPOCH is the date of the files [default: that of the commit].
# TEXTS=COMMAND is a program of this version that tells manual pages and completions where nothing starts the one that was made
# [default: one that was tried before, or this machine's own, which takes as long to build again].
set -Eeuo pipefail
trap 'echo "error: scripts/dist.sh, line $LINENO: $BASH_COMMAND" >&2' ERR
cd "$(dirname "$0")/.."
host=$(rustc -vV | sed -n 's/^host: //p')
version=$(sed -n '/^\[workspace.package\]/,/^\[/s/^version = "\(.*\)"/\1/p' Cargo.toml)
out=${OUT:-dist}
target_dir=${CARGO_TARGET_DIR:-target}
epoch=${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct 2>/dev/null || date +%s)}
# Linkers for Windows write a date into the program: this one.
export SOURCE_DATE_EPOCH=$epoch
targets=("$@")
scratch=$(mktemp -d)
# Bills of materials are written beside each Cargo.toml of the workspace, by a name that nobody else's file has.
bill=bill-of-dist-$$
without_bills() { find . \( -path ./target -o -path './.?*' \) -prune -o -name "$bill.json" -exec rm -f {} +; }
trap 'rm -rf "$scratch"; without_bills' EXIT
if [ ${#targets[@]} -eq 0 ]; then
  targets=("$host")
  case $host in *-linux-gnu) targets+=("${host%-gnu}-musl") ;; esac
fi

need() { command -v "$1" >/dev/null 2>&1 || { echo "error: $1 is not installed: $2" >&2; exit 1; }; }
need cargo-cyclonedx "cargo install cargo-cyclonedx --locked"
# On Windows it may have the one name or the other.
python=$(command -v python3 || command -v python || true)
[ -n "$python" ] || need python3 "it makes addresses of links in the pages that are packed"
# The C compiler that makes programs for $1 here, which links them, too, and Debian's package with it; nothing where none is known.
cross_compiler() {
  case $1 in
    "$host") ;;
    x86_64-pc-windows-gnu) echo x86_64-w64-mingw32-gcc gcc-mingw-w64-x86-64 ;;
    aarch64-unknown-linux-gnu) echo aarch64-linux-gnu-gcc gcc-aarch64-linux-gnu ;;
    x86_64-unknown-linux-gnu) echo x86_64-linux-gnu-gcc gcc-x86-64-linux-gnu ;;
  esac
}
# Ends where the host is not one of $1: the linker and libraries of that system are there alone.
made_on() { case $host in *-"$1"-*) ;; *) echo "error: $target can be made only on $2" >&2; exit 1 ;; esac; }
# Texts are read whole before they are searched: with `pipefail`, a program that writes on after grep has found its line would fail.
installed=$(rustup target list --installed)
for target in "${targets[@]}"; do
  case $target in
    "$host") ;;
    aarch64-apple-darwin)
      case $host in
        *-linux-*)
          need python3 "it looks at the program"
          # In a fixed place: cargo would build libraries in C anew for a compiler of another name.
          settings=$(scripts/apple_sdk.sh "$target_dir/apple")
          eval "$settings"
          ;;
        *) made_on apple "macOS and Linux" ;;
      esac
      ;;
    *-apple-*) made_on apple "macOS, but aarch64-apple-darwin on Linux as well" ;;
    *-msvc) made_on windows "Windows, but x86_64-pc-windows-gnu on Linux as well" ;;
    "${host%%-*}"-*-linux-musl) need musl-gcc "Debian and Ubuntu have it in musl-tools" ;;
  esac
  grep -qx "$target" <<< "$installed" || { echo "error: Rust for $target is not there: rustup target add $target" >&2; exit 1; }
  case $target in *windows*) need 7z "Debian and Ubuntu have it in p7zip-full" ;; esac
  # Libraries in C find their compiler by its name; the linker has to be named, unless somebody has.
  read -r compiler package <<< "$(cross_compiler "$target")"
  linker=CARGO_TARGET_$(tr a-z- A-Z_ <<< "$target")_LINKER
  if [ -n "$compiler" ] && [ -z "${!linker:-}" ]; then
    need "$compiler" "Debian and Ubuntu have it in $package"
    export "$linker=$compiler"
  fi
done
sum() { if command -v sha256sum >/dev/null 2>&1; then sha256sum "$@"; else shasum -a 256 "$@"; fi; }

# What a program does that somebody has just unpacked, in a folder of its own: $1 is the command that starts it.
try() {
  local candlescope=$1 run=$2 overview rows
  [ "$($candlescope --version)" = "candlescope $version" ]
  $candlescope doctor >/dev/null
  $candlescope demo --out "$run/demo" >/dev/null
  $candlescope profile --model embedded --max-new-tokens 4 --repeats 1 --warmup 0 --no-progress --out "$run/first" >/dev/null
  overview=$($candlescope overview "$run/first")
  grep -q embedded <<< "$overview"
  rows=$($candlescope query "SELECT count(*) AS n FROM spans" "$run/first" --json)
  grep -q '"n"' <<< "$rows"
}

# The same where nothing else is: no shell, no library, no certificate, and neither devices nor /proc, of which even a container has some.
try_alone() {
  local root=$scratch/root run
  mkdir -p "$root/tmp" "$root/proc" "$root/dev"
  cp "$1" "$root/candlescope"
  if [ "$(id -u)" -eq 0 ]; then run=(chroot "$root"); else run=(unshare --user --map-root-user chroot "$root"); fi
  try "${run[*]} /candlescope" /tmp
  rm -rf "$root"
}

# Sets `start` to what starts the program $2 of the target $1 here: itself, or with Wine or QEMU, which has a thread of its own in the
# process, so that the command cannot set its number of threads any more. Empty where nothing does.
how_to_start() {
  local arch=${1%%-*}
  start=
  case $1 in
    "$host" | "${host%%-*}"-*-linux-musl) start=$2 ;;
    *-windows-gnu) if command -v wine >/dev/null; then prepare_wine; start="wine $2"; fi ;;
    *-linux-gnu) if command -v "qemu-$arch" >/dev/null; then start="env RAYON_NUM_THREADS=1 CANDLE_NUM_THREADS=1 qemu-$arch -L /usr/$arch-linux-gnu $2"; fi ;;
  esac
}

# Wine in a folder of its own, so that nobody's settings count. Programs of Rust take random numbers from a library of Windows that
# Wine 8 does not have: there a stand-in asks the function that it has.
prepare_wine() {
  export WINEPREFIX=$scratch/wine WINEDEBUG=-all
  if [ -d "$WINEPREFIX" ]; then return; fi
  local library=$WINEPREFIX/drive_c/windows/system32/bcryptprimitives.dll
  wine cmd /c exit >/dev/null 2>&1 || { echo "error: wine is there and does not start: wine cmd /c exit" >&2; exit 1; }
  [ -e "$library" ] || x86_64-w64-mingw32-gcc -shared -o "$library" -xc - -ladvapi32 <<'C'
#include <windows.h>
BOOLEAN NTAPI SystemFunction036(PVOID bytes, ULONG length);
__declspec(dllexport) BOOL WINAPI ProcessPrng(PBYTE bytes, SIZE_T length) { return SystemFunction036(bytes, (ULONG)length); }
C
}

scripts/dist_folder.sh "$out"
texts=${TEXTS:-}
for target in "${targets[@]}"; do
  name=candlescope-$version-$target
  folder=$out/$name
  exe=
  case $target in *windows*) exe=.exe ;; esac
  echo "== $target"
  cargo build -q --locked --profile dist -p candlescope-cli --bin candlescope --target "$target"
  program=$target_dir/$target/dist/candlescope$exe
  mkdir -p "$folder"
  cp "$program" "$folder/"
  case $target in
    *-linux-gnu)
      # Of musl there is none: a program that is linked statically loads no library.
      cargo build -q --locked --profile dist -p candlescope-inject --features prometheus --target "$target"
      cp "$target_dir/$target/dist/libcandlescope_inject.so" "$folder/"
      ;;
  esac
  how_to_start "$target" "$program"
  case $target in
    "${host%%-*}"-*-linux-musl)
      # A program with an interpreter is none that starts anywhere.
      headers=$(readelf -l "$program")
      if grep -q INTERP <<< "$headers"; then echo "error: $program is not static" >&2; exit 1; fi
      try_alone "$program"
      texts=${texts:-$start}
      ;;
    *)
      if [ -n "$start" ]; then
        mkdir -p "$scratch/$target"
        try "$start" "$scratch/$target"
        if [ "$start" != "$program" ]; then echo "tried with ${start%% *}"; fi
        texts=${texts:-$start}
      else
        case $target in
          *-apple-darwin)
            scripts/macho.py "$program"
            echo "NOT tried: nothing here starts a program of $target"
            ;;
          *) echo "NOT tried: nothing here starts a program of $target (Debian and Ubuntu have wine and qemu-user)" ;;
        esac
        # Texts are the same on every target.
        if [ -z "$texts" ]; then
          cargo build -q --locked --profile dist -p candlescope-cli --bin candlescope --target "$host"
          texts=$target_dir/$host/dist/candlescope
        fi
        start=$texts
        [ "$($start --version)" = "candlescope $version" ]
      fi
      ;;
  esac
  $start man --out "$folder/man/man1" >/dev/null
  mkdir -p "$folder/completions"
  for shell in bash zsh fish powershell elvish; do
    case $shell in
      zsh) file=_candlescope ;;
      powershell) file=candlescope.ps1 ;;
      *) file=candlescope.$shell ;;
    esac
    $start completions $shell > "$folder/completions/$file"
  done
  cp LICENSE-* "$folder/"
  for page in README.md LIMITATIONS.md CHANGELOG.md; do "$python" scripts/absolute_links.py "$page" > "$folder/$page"; done
  cargo cyclonedx -q --manifest-path cli/Cargo.toml --format json --target "$target" --override-filename "$bill"
  mv "cli/$bill.json" "$folder/candlescope.cdx.json"
  without_bills
  case $target in
    *windows*)
      # The same commit gives the same archive: its dates are local times.
      find "$folder" -exec touch -d "@$epoch" {} +
      (cd "$out" && TZ=UTC 7z a -bso0 -mtc=off -mta=off "$name.zip" "$name")
      ;;
    *)
      if tar --version 2>/dev/null | grep -q GNU; then
        # The same commit gives the same archive.
        tar --sort=name --owner=0 --group=0 --numeric-owner --mtime="@$epoch" -C "$out" -cf - "$name" | gzip -9n > "$out/$name.tar.gz"
      else
        tar -C "$out" -czf "$out/$name.tar.gz" "$name"
      fi
      ;;
  esac
  rm -rf "$folder"
done
(cd "$out" && sum candlescope-* > SHA256SUMS && cat SHA256SUMS && ls -l)
