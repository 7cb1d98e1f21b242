#!/usr/bin/env bash
# Archives of the command line, as a release has them: `dist/candlescope-VERSION-TARGET.tar.gz` with the program, what `record` loads
# into other programs (gnu), completions, manual pages, a bill of materials (CycloneDX) and licences, and `dist/SHA256SUMS`. Each
# program is tried before it is packed; the static one in an empty root directory.
# Usage: scripts/dist.sh [TARGET…]     [default: this machine's own, and on Linux the static one of musl beside it]
# OUT=DIR chooses another folder. SOURCE_DATE_EPOCH is the date of the files [default: that of the commit].
set -euo pipefail
cd "$(dirname "$0")/.."
host=$(rustc -vV | sed -n 's/^host: //p')
version=$(sed -n '/^\[workspace.package\]/,/^\[/s/^version = "\(.*\)"/\1/p' Cargo.toml)
out=${OUT:-dist}
target_dir=${CARGO_TARGET_DIR:-target}
epoch=${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct 2>/dev/null || date +%s)}
targets=("$@")
if [ ${#targets[@]} -eq 0 ]; then
  targets=("$host")
  case $host in *-linux-gnu) targets+=("${host%-gnu}-musl") ;; esac
fi

need() { command -v "$1" >/dev/null 2>&1 || { echo "error: $1 is not installed: $2" >&2; exit 1; }; }
need cargo-cyclonedx "cargo install cargo-cyclonedx --locked"
# Texts are read whole before they are searched: with `pipefail`, a program that writes on after grep has found its line would fail.
installed=$(rustup target list --installed)
for target in "${targets[@]}"; do
  grep -qx "$target" <<< "$installed" || { echo "error: Rust for $target is not there: rustup target add $target" >&2; exit 1; }
  case $target in *-linux-musl) need musl-gcc "Debian and Ubuntu have it in musl-tools" ;; esac
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
  local root run
  root=$(mktemp -d)
  cp "$1" "$root/candlescope"
  mkdir "$root/tmp" "$root/proc" "$root/dev"
  if [ "$(id -u)" -eq 0 ]; then run=(chroot "$root"); else run=(unshare --user --map-root-user chroot "$root"); fi
  try "${run[*]} /candlescope" /tmp
  rm -rf "$root"
}

rm -rf "$out"
mkdir -p "$out"
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
      cargo build -q --locked --profile dist -p candlescope-inject --target "$target"
      cp "$target_dir/$target/dist/libcandlescope_inject.so" "$folder/"
      ;;
  esac
  if [ "$target" = "$host" ]; then
    scratch=$(mktemp -d)
    try "$program" "$scratch"
    rm -rf "$scratch"
  fi
  case $target in
    "${host%%-*}"-*-linux-musl)
      # A program with an interpreter is none that starts anywhere.
      headers=$(readelf -l "$program")
      if grep -q INTERP <<< "$headers"; then echo "error: $program is not static" >&2; exit 1; fi
      try_alone "$program"
      ;;
  esac
  # Texts are the same on every target; programs of other machines do not run here.
  teller=$program
  "$teller" --version >/dev/null 2>&1 || teller=$target_dir/$host/dist/candlescope
  "$teller" man --out "$folder/man/man1" >/dev/null
  mkdir -p "$folder/completions"
  for shell in bash zsh fish powershell elvish; do
    case $shell in
      zsh) file=_candlescope ;;
      powershell) file=candlescope.ps1 ;;
      *) file=candlescope.$shell ;;
    esac
    "$teller" completions $shell > "$folder/completions/$file"
  done
  cp README.md LIMITATIONS.md CHANGELOG.md LICENSE-* "$folder/"
  SOURCE_DATE_EPOCH=$epoch cargo cyclonedx -q --manifest-path cli/Cargo.toml --format json --target "$target" --override-filename sbom
  mv cli/sbom.json "$folder/candlescope.cdx.json"
  find . -name sbom.json -not -path "./$target_dir/*" -not -path './.*' -delete
  case $target in
    *windows*) (cd "$out" && 7z a -bso0 "$name.zip" "$name") ;;
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
