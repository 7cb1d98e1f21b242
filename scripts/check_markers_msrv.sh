#!/usr/bin/env bash
# candlescope-markers with the oldest Rust that it promises, given as the argument: as a library gets it from crates.io, outside of
# the workspace, whose Cargo.toml and Cargo.lock that cargo cannot read. Dependencies are chosen by the cargo of today, in versions
# for that Rust, and vendored, because the old cargo would fetch the whole index.
set -euo pipefail
rust=$1
cd "$(dirname "$0")/.."
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
cargo package -q -p candlescope-markers --no-verify --allow-dirty --target-dir "$dir/target"
tar -xzf "$dir"/target/package/candlescope-markers-*.crate -C "$dir" --strip-components 1
cd "$dir"
# `package` adds the workspace's lock file.
rm -f Cargo.lock
export CARGO_RESOLVER_INCOMPATIBLE_RUST_VERSIONS=fallback
mkdir .cargo
cargo vendor > .cargo/config.toml 2> vendor.log || { cat vendor.log >&2; exit 1; }
for features in "" enabled; do
    cargo "+$rust" check -q --offline --features "$features"
    cargo "+$rust" test -q --offline --features "$features"
done
