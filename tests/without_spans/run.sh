#!/bin/sh
# candle's models with the candle-nn that `candlescope trace-candle-nn` writes: a cargo project of its own, made below
# `target`, whose Cargo.toml has the two lines that a user adds. candle-nn and candle-transformers are built anew for it,
# which takes minutes; what does not depend on them is shared with the workspace.
# UPDATE_DOCS=1 writes the figures into docs/models.md. More arguments go to the tests.
set -eu
cd "$(dirname "$0")/../.."
root=$PWD
project=$root/target/without-spans
candlescope=${CANDLESCOPE:-target/debug/candlescope}

mkdir -p "$project"
"$candlescope" trace-candle-nn --out "$project/candle-nn" --manifest-path Cargo.toml >/dev/null

version() {
	sed -n "s/^$1 = \"\(.*\)\"\$/\1/p; s/^$1 = { version = \"\([^\"]*\)\".*/\1/p" Cargo.toml | head -n 1
}

{
	cat <<END
[package]
name = "candlescope-without-spans"
version = "0.0.0"
edition = "2024"
publish = false

[workspace]

[lib]
path = "$root/tests/without_spans/traced.rs"
doctest = false

[dependencies]
candlescope = { path = "$root/sdk/candlescope", default-features = false, features = ["candle"] }
candlescope-core = { path = "$root/sdk/core" }
candle-core = "$(version candle-core)"
candle-nn = "$(version candle-nn)"
candle-transformers = "$(version candle-transformers)"
serde = { version = "$(version serde)", features = ["derive"] }
serde_json = "$(version serde_json)"
tracing = { version = "$(version tracing)", default-features = false }
tracing-subscriber = { version = "$(version tracing-subscriber)", default-features = false, features = ["std", "registry"] }

[patch.crates-io]
candle-nn = { path = "candle-nn" }

END
	sed -n '/^# One profile serves/,$p' Cargo.toml
} >"$project/Cargo.toml.new"
# The same versions as everywhere, unless they were chosen before.
if ! cmp -s "$project/Cargo.toml.new" "$project/Cargo.toml" || [ Cargo.lock -nt "$project/Cargo.lock" ]; then
	mv "$project/Cargo.toml.new" "$project/Cargo.toml"
	cp Cargo.lock "$project/Cargo.lock"
fi
exec cargo test --manifest-path "$project/Cargo.toml" --target-dir "$root/target" -- "$@"
