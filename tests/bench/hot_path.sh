#!/bin/sh
# Compares the hot path of this tree with that of another commit, in turns: what a change costs while recording.
#
#   tests/bench/hot_path.sh COMMIT [ROUNDS]
#
# Builds the example `hot_path` of both (the older tree gets this one's source of it) and lets them take turns; a
# quarter of an hour with the default of twelve rounds. Close other programs: ratios tolerate some load, absolute
# figures do not.
set -eu
cd "$(dirname -- "$0")/../.."
base=${1:?which commit to compare with}
rounds=${2:-12}
target=${CARGO_TARGET_DIR:-$PWD/target}
old=$target/hot_path-old
rm -rf "$old" && mkdir -p "$old"
git archive "$base" | tar x -C "$old"
mkdir -p "$old/sdk/core/examples"
cp sdk/core/examples/hot_path.rs "$old/sdk/core/examples/"
(cd "$old" && CARGO_TARGET_DIR="$target/hot_path-target" cargo build -q -p candlescope-core --example hot_path)
cargo build -q -p candlescope-core --example hot_path
"$target/debug/examples/hot_path" --against "$target/hot_path-target/debug/examples/hot_path" "$rounds"
