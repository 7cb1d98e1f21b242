#!/bin/sh
# Runs candle's own examples `qwen` and `t5`, patched and built by build.sh, on weights made here, and holds what the report
# shows to what these models are: modules by name, and where the program tells its steps, FLOPs, bytes, MFU and MBU.
#
# Usage: run.sh PROGRAMS CANDLESCOPE OUT [cuda]     on a CUDA device at the true sizes, else small on the CPU
#   PROGRAMS     folder that build.sh names
#   CANDLESCOPE  the command
#   OUT          folder for weights and runs
set -eu
programs=$(cd "$1" && pwd) candlescope=$(cd "$(dirname "$2")" && pwd)/$(basename "$2") out=$3 device=${4:-cpu}
rm -rf "$out/runs"
mkdir -p "$out/runs"
out=$(cd "$out" && pwd)
if [ "$device" = cuda ]; then size=full cpu='' keys=,cupti=5/50; else size=small cpu=--cpu keys=; fi
for kind in qwen2 t5; do
	[ -e "$out/$kind-$size/tokenizer.json" ] || "$programs/weights" $kind $size "$out/$kind-$size"
done

run() { # NAME PROGRAM ARGUMENTS: the run's report, in OUT/NAME
	name=$1 program=$2
	shift 2
	CANDLESCOPE="parquet=$out/runs/$name$keys" "$programs/$program" $cpu "$@" >"$out/$name.said"
	mv "$out/runs/$name"/* "$out/runs/$name.run"
	rmdir "$out/runs/$name"
	# A CPU has no datasheet here: its peaks are measured.
	[ "$device" = cuda ] || "$programs/weights" peaks | python3 -c '
import json, sys
path = sys.argv[1] + "/run.json"
run = json.load(open(path))
run["environment"]["peaks"] = json.load(sys.stdin)
json.dump(run, open(path, "w"))' "$out/runs/$name.run"
	"$candlescope" report "$out/runs/$name.run" >"$out/$name.txt"
}
cd "$out/qwen2-$size"
run qwen qwen --model 2-0.5b --weight-path . --prompt 'w1 w2 w3 w4 w5' --sample-len 33
run qwen-work qwen-work --model 2-0.5b --weight-path . --prompt 'w1 w2 w3 w4 w5' --sample-len 33
cd "$out/t5-$size"
run t5 t5 --model-file model.safetensors --config-file config.json --tokenizer-file tokenizer.json --decode \
	--prompt 'w1 w2 w3 w4 w5' --temperature 0

sed -n '/^Where the time goes/,/^$/p; /^Kernels by path/,/^$/p' "$out/qwen-work.txt"
python3 - "$out" "$size" <<'PY'
import json, sys
out, size = sys.argv[1:]

def load(name):
    run = f"{out}/runs/{name}.run"
    return json.load(open(run + "/run.json")), json.load(open(run + "/metrics.json")), open(run + "/operators.md").read()

config = json.load(open(f"{out}/qwen2-{size}/config.json"))
layers = config["num_hidden_layers"]
for name in ["qwen", "qwen-work"]:
    run, metrics, operators = load(name)
    model = run["modules"]
    # A layer has seven projections and two norms; the last norm and the head come on top. The embedding has no span.
    assert model["modules"] == 9 * layers + 2, model
    assert model["unnamed"] == {} and model["unowned"] == ["model.embed_tokens.weight"], model
    assert "model.layers.*.mlp.down_proj" in operators and "lm_head" in operators, operators
    print(f"{name}: {model['modules']} modules of {model['weights']} weights by name")
print(json.dumps(metrics, indent=1)[:1500])
PY
