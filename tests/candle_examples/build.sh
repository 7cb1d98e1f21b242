#!/bin/sh
# Builds candle's own examples `qwen` and `t5`, as they are published on crates.io, patched by a few lines, in a cargo
# project made below `target`. Nothing of them is kept here: cargo downloads the crate candle-examples.
#
# Usage: build.sh [CARGO'S OPTIONS]     --release --features cuda for a CUDA machine
# Prints the folder with the programs: qwen and t5 (two lines each: `init` and `observe`), qwen-work (two more lines, which
# tell the model and the tokens of each step) and weights, which makes small models for them.
set -eu
cd "$(dirname "$0")/../.."
root=$PWD
project=$root/target/candle-examples
mkdir -p "$project/src" "$project/hf-hub"

version() {
	sed -n "s/^$1 = \"\(.*\)\"\$/\1/p; s/^$1 = { version = \"\([^\"]*\)\".*/\1/p" Cargo.toml | head -n 1
}
candle=$(version candle-core)

{
	cat <<END
[package]
name = "candle-examples-observed"
version = "0.0.0"
edition = "2021"
publish = false
autobins = false

[workspace]

[features]
cuda = ["candle/cuda", "candle-nn/cuda", "candle-transformers/cuda", "candle-examples/cuda", "candlescope/gpu"]

[dependencies]
anyhow = "$(version anyhow)"
candle = { package = "candle-core", version = "$candle" }
candle-examples = "=$candle"
candle-nn = "$candle"
candle-transformers = "$candle"
candlescope = { path = "$root/sdk/candlescope", features = ["candle"] }
clap = { version = "4", features = ["derive"] }
serde_json = "$(version serde_json)"
tokenizers = { version = "$(version tokenizers)", default-features = false, features = ["fancy-regex"] }
tracing-chrome = "0.7"
tracing-subscriber = "0.3"

[patch.crates-io]
hf-hub = { path = "hf-hub" }

END
	for program in qwen qwen-work t5; do
		printf '[[bin]]\nname = "%s"\npath = "src/%s.rs"\n\n' $program $program
	done
	printf '[[bin]]\nname = "weights"\npath = "%s"\n\n' "$root/tests/candle_examples/weights.rs"
	sed -n '/^# One profile serves/,$p' Cargo.toml
} >"$project/Cargo.toml.new"
printf '[package]\nname = "hf-hub"\nversion = "1.0.0"\nedition = "2021"\n\n[features]\nblocking = []\n\n[lib]\npath = "%s"\n' \
	"$root/tests/candle_examples/hf_hub.rs" >"$project/hf-hub/Cargo.toml"
if ! cmp -s "$project/Cargo.toml.new" "$project/Cargo.toml" || [ Cargo.lock -nt "$project/Cargo.lock" ]; then
	mv "$project/Cargo.toml.new" "$project/Cargo.toml"
	cp Cargo.lock "$project/Cargo.lock"
	# Cargo reads the programs when it reads Cargo.toml.
	for program in qwen qwen-work t5; do [ -e "$project/src/$program.rs" ] || echo 'fn main() {}' >"$project/src/$program.rs"; done
fi

cargo fetch -q --manifest-path "$project/Cargo.toml"
examples=$(ls -d "${CARGO_HOME:-$HOME/.cargo}"/registry/src/*/candle-examples-"$candle"/examples | head -n 1)

# Puts a line after the one line that has the text, or before it, and fails where there is no such line.
insert() { # FILE after|before TEXT LINE
	awk -v how="$2" -v text="$3" -v line="$4" '
		index($0, text) && how == "before" { print line }
		{ print }
		index($0, text) && how == "after" { print line }
		index($0, text) { found++ }
		END { exit found != 1 }
	' "$1" >"$1.new" || { echo "$1: not one line with $3: these are not the examples that the lines were written for" >&2; exit 1; }
	mv "$1.new" "$1"
}
start='let _scope = candlescope::init();'
observe='let vb = candlescope::observe(vb);'

new=$project/src.new
mkdir -p "$new"
cp "$examples/qwen/main.rs" "$new/qwen.rs"
insert "$new/qwen.rs" after 'let args = Args::parse();' "$start"
insert "$new/qwen.rs" after 'let vb = unsafe { VarBuilder::from_mmaped_safetensors(' "$observe"
cp "$new/qwen.rs" "$new/qwen-work.rs"
insert "$new/qwen-work.rs" before "$observe" 'candlescope::modules::model(&std::fs::read_to_string(&config_file)?)?;'
insert "$new/qwen-work.rs" before 'let logits = self.model.forward(&input, start_pos)?;' \
	'let told = candlescope::llm::Tokens::new(context_size).context(tokens.len()); let _step = if index > 0 { candlescope::llm::decode(told) } else { candlescope::llm::prefill(told) };'
cp "$examples/t5/main.rs" "$new/t5.rs"
insert "$new/t5.rs" after 'let args = Args::parse();' "$start"
insert "$new/t5.rs" before 'Ok(t5::T5ForConditionalGeneration::load(vb, &self.config)?)' "$observe"
for program in qwen qwen-work t5; do
	cmp -s "$new/$program.rs" "$project/src/$program.rs" || cp "$new/$program.rs" "$project/src/$program.rs"
done

target=${CARGO_TARGET_DIR:-$root/target}
cargo build --manifest-path "$project/Cargo.toml" --target-dir "$target" "$@" >&2
case " $* " in *" --release "*) echo "$target/release" ;; *) echo "$target/debug" ;; esac
