#!/usr/bin/env bash
# Replays of CUDA graphs, layer by layer: whether every kernel of a replay is known by the interval that captured it, what a
# window of kernels costs a replay, steps that leave their graph, keys and values in 8 bits, and a graph that was captured before the
# session. Three minutes on an H200.
# Usage: tests/gpu/replays.sh
#   BIN      folder with `candlescope-cuda` (cargo build -p candlescope-cli --features cuda, renamed), and `graph_before` (cargo build
#            -p candlescope-bench --features gpu --bin graph_before), without which the last case is left out
#   OUT      folder for results (default: target/bench/replays)
#   TAKES    takes of each case (default 2)
#   MODELS   names of `config:NAME` (default: smollm2-135m gpt2 llama-3-8b)
# Prints, for each run: kernels of graphs and how many of them have an interval, kernels of a replay and nodes of its graph,
# time on the device with a module, the median of replayed steps in windows and outside, and the eager run's paths beside the
# replay's. Fails if a case does, if a kernel of a graph has no interval, or if a replay has not each node once that other replays
# of its graph ran, unless the records are counted as lost: the recorder told so (`dropped`, with `mistimed`), or it was seen by
# their number (`untold`). Also if more are counted as untold than are missing. Of the graph from before the session each kernel has to
# have the layer of the graph that was captured in it, as derived, and the time by layer is printed for both.
set -uo pipefail
root=$(cd "$(dirname "$0")/../.." && pwd)
[ -z "${BIN:-}" ] || export PATH=$BIN:$PATH
out=${OUT:-$root/target/bench/replays}
mkdir -p "$out"
failed=0

record() { # NAME MODEL OPTIONS…
  local name=$1 model=$2
  shift 2
  if ! candlescope-cuda profile --model "config:$model" --device cuda:0 --dtype bf16 --prompt-tokens 64 --ignore-eos \
    --no-progress --set stacks=off "$@" --out "$out/$name" >"$out/$name.txt" 2>&1; then
    echo "failed: $name: $(tail -n 2 "$out/$name.txt")"
    failed=1
    return 1
  fi
}

ask() { # NAME SQL
  candlescope-cuda query "$2" "$out/$1" 2>&1
}

nodes() { # NAME: whether each replay of each graph has all its nodes, once
  candlescope-cuda query --json "WITH launches AS (SELECT graph, correlation, count(*) AS n, count(DISTINCT graph_node) AS nodes \
    FROM kernels WHERE graph IS NOT NULL GROUP BY graph, correlation), graphs AS (SELECT graph, count(DISTINCT graph_node) AS nodes \
    FROM kernels WHERE graph IS NOT NULL GROUP BY graph) SELECT launches.graph, graphs.nodes, count(*) AS replays, min(n) AS fewest, \
    max(n) AS most, sum(n - launches.nodes) AS twice, sum(graphs.nodes - launches.nodes) AS missing FROM launches JOIN graphs ON \
    launches.graph = graphs.graph GROUP BY 1, 2 ORDER BY 1" "$out/$1" >"$out/$1-nodes.json" || return 1
  python3 - "$out/$1-nodes.json" "$out/$1/run.json" <<'P'
import json, sys
graphs = json.load(open(sys.argv[1]))["rows"]
kernels = json.load(open(sys.argv[2]))["gpu"]["kernels"]
dropped, untold = kernels["dropped"], kernels["untold"]
for g in graphs:
    print("graph %(graph)s: %(nodes)s nodes, %(replays)s replays of %(fewest)s to %(most)s kernels" % g)
twice, missing = (sum(g[key] for g in graphs) for key in ("twice", "missing"))
if twice:
    print("FAILED: replays ran", twice, "nodes twice")
counts = "(%d of which the recorder told, %d of which it did not)" % (dropped, untold)
if missing > dropped + untold:
    print("FAILED: replays have", missing, "kernels fewer than their graphs have nodes, and", dropped + untold, "are counted as lost", counts)
if untold > missing:
    print("FAILED:", untold, "kernels are counted as missing in replays, of which", missing, "are missing", counts)
sys.exit(not graphs or twice > 0 or missing > dropped + untold or untold > missing)
P
}

look() { # NAME
  local name=$1
  python3 - "$out/$name/run.json" "$name" <<'P' || failed=1
import json, sys
k = json.load(open(sys.argv[1]))["gpu"]["kernels"]
print(sys.argv[2], "kernels of graphs", k["of_graphs"], "with an interval", k["of_captured"], "dropped", k["dropped"],
      "of these mistimed", k["mistimed"], "untold", k["untold"], "late", k["late"])
sys.exit(k["of_graphs"] == 0 or k["of_captured"] != k["of_graphs"])
P
  nodes "$name" || failed=1
  ask "$name" "SELECT sum(CASE WHEN path LIKE '%block%' OR module IS NOT NULL THEN gpu_dur_ns ELSE 0 END) * 1.0 / sum(gpu_dur_ns) AS in_modules \
    FROM kernels WHERE graph IS NOT NULL"
  ask "$name" "SELECT s.ran, CASE WHEN k.step IS NULL THEN 'outside' ELSE 'window' END AS which, count(*) AS steps, \
    median(s.host_dur_ns) / 1e6 AS ms, median(s.gpu_dur_ns) / 1e6 AS gpu_ms FROM measured_steps s LEFT JOIN (SELECT DISTINCT step FROM kernels) k \
    ON k.step = s.step WHERE s.phase = 'decode' GROUP BY 1, 2 ORDER BY 1, 2"
}

paths() { # NAME: time on the device by rollup path, of a step with kernels
  ask "$1" "SELECT operator_of(path, NULL) AS operator, count(*) AS kernels, sum(gpu_dur_ns) / 1e3 / (SELECT count(DISTINCT step) FROM \
    kernels WHERE phase = 'decode') AS us FROM kernels WHERE phase = 'decode' GROUP BY 1 ORDER BY 3 DESC LIMIT 14"
}

for model in ${MODELS:-smollm2-135m gpt2 llama-3-8b}; do
  for take in $(seq "${TAKES:-2}"); do
    record "$model-graph-$take" "$model" --cuda-graph --max-model-len 1024 --max-new-tokens 200 --warmup 2 --repeats 4 --cupti=5/50 &&
      look "$model-graph-$take"
  done
  record "$model-eager" "$model" --max-new-tokens 100 --warmup 1 --repeats 3 --cupti=5/50 --gpu-timing steps
  echo "$model eager"; paths "$model-eager"
  echo "$model replayed"; paths "$model-graph-1"
done
# Scales are written and codes widened within the graph.
record q8 smollm2-135m --cuda-graph --max-model-len 1024 --max-new-tokens 200 --warmup 2 --repeats 4 --cupti=5/50 --kv-cache-dtype q8 &&
  look q8
# A graph that nobody saw being captured, beside one of the same model that is captured in the session.
if command -v graph_before >/dev/null; then
  rm -rf "$out/before"
  if graph_before --steps 40 --out "$out/before" >"$out/before.json" 2>"$out/before.txt"; then
    python3 - "$out/before.json" <<'P' || failed=1
import json, sys
k = json.loads(open(sys.argv[1]).read().splitlines()[-1])["kernels"]
print("before: kernels of graphs", k["of_graphs"], "with an interval", k["of_captured"], "with a derived one", k["of_derived"])
sys.exit(not k["of_derived"] or k["of_captured"] + k["of_derived"] != k["of_graphs"])
P
    ask before "SELECT coalesce(CAST(derived AS INT), 0) AS is_derived, operator_of(path, NULL) AS operator, count(*) AS kernels, \
      sum(gpu_dur_ns) / 1e3 / count(DISTINCT step) AS us FROM kernels WHERE graph IS NOT NULL GROUP BY 1, 2 ORDER BY 4 DESC LIMIT 16"
  else
    echo "failed: before: $(tail -n 2 "$out/before.txt")"
    failed=1
  fi
else
  echo "before: graph_before is not on the PATH: left out"
fi
# A context that grows through several shapes, with no request before it: the first steps of each run call by call.
record left smollm2-135m --cuda-graph --max-model-len 2048 --max-new-tokens 1200 --warmup 0 --repeats 1 --cupti=5/200
look left
candlescope-cuda analyze --top 0 "$out/left" >"$out/left-analysis.txt" 2>&1
grep -iE -A4 "left their CUDA graph" "$out/left-analysis.txt" || { echo "no finding left_graph"; failed=1; }
candlescope-cuda report "$out/smollm2-135m-graph-1" >"$out/report.txt" 2>&1 || failed=1
candlescope-cuda analyze "$out/smollm2-135m-graph-1" >"$out/analysis.txt" 2>&1 || failed=1
candlescope-cuda export perfetto "$out/smollm2-135m-graph-1" >>"$out/report.txt" 2>&1 || failed=1
exit $failed
