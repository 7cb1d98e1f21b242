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
if [ "$device" = cuda ]; then size=full cpu='' keys=,cupti=5/50; else size=small cpu=--cpu keys=''; fi
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
    return json.load(open(run + "/run.json"))["modules"], json.load(open(run + "/metrics.json"))

def named(metrics, module):
    return any(row["path"].endswith(module) for row in metrics["operators"])

config = json.load(open(f"{out}/qwen2-{size}/config.json"))
layers = config["num_hidden_layers"]
for name in ["qwen", "qwen-work"]:
    model, metrics = load(name)
    # A layer has seven projections and two norms; the last norm and the head come on top. The embedding has no span.
    assert model["modules"] == 9 * layers + 2, model
    assert not model["unnamed"] and model["unowned"] == ["model.embed_tokens.weight"], model
    if name == "qwen":
        continue  # without phases each layer is a step of its own, and steps keep the names of their spans
    for module in ["model.layers.*.mlp.down_proj", "model.layers.*.self_attn.q_proj", "model.norm", "lm_head"]:
        assert named(metrics, module), module
    parts = {row["label"] for row in metrics["tree"]["rows"] if row["group"]}
    assert {"model", "layers.*", "mlp", "self_attn"} <= parts, parts
    print(f"{name}: {model['modules']} modules of {model['weights']} weights by name")

# qwen-work tells the model and the tokens of each step: its FLOPs and bytes are known.
used = {(row["phase"], row["metric"], row["over"]): row["value"] for row in metrics["utilisation"]}
for phase, metric in [("prefill", "mfu"), ("decode", "mbu")]:
    value = used[phase, metric, "wall"]
    assert 0 < value < 1, used
    print(f"{phase}: {metric.upper()} {value:.2%} of wall time")

model, metrics = load("t5")
assert not model["unnamed"], model
for module in ["SelfAttention.q", "EncDecAttention.k", "DenseReluDense.wo", "lm_head"]:
    assert named(metrics, module), module
print(f"t5: {model['modules']} modules of {model['weights']} weights by name")
PY
