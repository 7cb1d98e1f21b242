#!/usr/bin/env bash
# `candlescope record` on PyTorch as it is: every mode of record_torch.py recorded, kernels beside PyTorch's own profiler, what recording
# costs beside nothing, Kineto and Nsight Systems, and what of it is paid for what; programs that crash, that fork, that have no CUDA, and
# in C, of CUDA 12, and two below MPS; many starts. All of it takes longer than 40 minutes: PARTS has some of it done.
# What is not as it should be is a line with WRONG, and all of these are said again at the end; the status is 1 then.
# Usage: tests/gpu/record.sh
#   CANDLESCOPE_BINARY         the command (default: target/debug/candlescope)
#   CANDLESCOPE_INJECT_LIBRARY the library (default: beside it)
#   OUT                        folder for runs (default: target/bench/record)
#   NSYS                       Nsight Systems, if it is to be compared with
#   MODES                      ways of running (eager ranges started emit compile graph threads); MODES_8B, of the shape of Llama 8B (ranges)
#   LIMIT                      seconds that a program may take (180)
#   PARTS                      which of: ways ends beside windows candle c cuda12 mps vllm starts profilers clients ncu soak nvtx launches place costs
#   CANDLE                     a `candlescope` that was built with CUDA: the same model in candle, as it is recorded from outside and by itself
#   CANDLE_SHAPES              of which shapes (smollm2; also 8b); compared with what `ways` recorded of them
#   CLIENT_CUPTI               clients: a libcupti.so with cuptiSubscribe_v2 (default: libcupti.so.13), NEWER besides
#   NCU                        Nsight Compute; SOAK_SECONDS of each soak (120), SOAK_WAYS (5/1s all)
# starts:   STARTS of each program in C (40), THREADS that make contexts (1 2 8 32), TORCH_STARTS of each in PyTorch (10); GDB, a debugger
# beside:   the run `ranges` of ways, made before or with it
# nvtx:     NVTX_ROUNDS of a process by itself and recorded (3), NVTX_TOKENS of each (450)
# launches: LAUNCH_ROUNDS (5), BLOCKS of launches in each process (40), WAYS of recording (below)
# place:    PLACE_TOKENS in one process (800)
# costs:    ROUNDS (3), TOKENS of each (200), COSTS, ways of recording (below)
# Ways of recording, for WAYS and COSTS: plain (nothing), loaded (without kernels and ranges), ranges (without kernels), 5/5s, 5/100, all;
#   before (all, by the library that BEFORE names, of an earlier build); newer, older (all, by the CUPTI that NEWER and OLDER name); attached, calls, kernels (CUPTI is there and records nothing,
#   calls alone, kernels alone); pinned, buffer=KIB, device-buffer=KIB (all, with CUPTI's memory elsewhere or of another size);
#   kineto, proton and nsys (COSTS only)
# vllm:     VLLM, further arguments of vLLM's LLM as JSON; VLLM_LIMIT, seconds that a start of it may take (400); VLLM_PORT, of its server (8391)
# cuda12:   CUDA12, a folder with libcudart.so.12 and libcupti.so.12, such as one into which pip has unpacked nvidia-cuda-runtime-cu12 and
#           nvidia-cuda-cupti-cu12 (pip install --no-deps --target FOLDER; 12.8 or later)
# mps:      MPS_CONTROL, nvidia-cuda-mps-control (default: the one on the PATH, or beside the driver)
set -uo pipefail
here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../.." && pwd)
cs=${CANDLESCOPE_BINARY:-$root/target/debug/candlescope}
out=${OUT:-$root/target/bench/record}
tokens=${TOKENS:-200}
nvcc=${NVCC:-$(command -v nvcc || echo /usr/local/cuda/bin/nvcc)}
# One that hangs must not take the time of the others.
limited=(timeout -k 5 "${LIMIT:-180}")
mkdir -p "$out"
# shellcheck source=tests/gpu/kept.sh
. "$here/kept.sh"
# What is not as it should be; also in subshells and pipes, so that it is kept in a file.
rm -f "$out/wrong.txt"
wrong() { echo "  WRONG $*" | tee -a "$out/wrong.txt"; }
is_status() { # NAME STATUS EXPECTED
  echo "status $2"
  [ "$2" = "$3" ] || wrong "$1: status $2, not $3"
}
torch() { "${limited[@]}" python3 -W ignore "$here/record_torch.py" "$@"; }
recorded() { # NAME OPTIONS… -- MODE…; STATUS: of the program (0)
  local name=$1 options=()
  shift
  while [ "$1" != -- ]; do options+=("$1"); shift; done
  shift
  rm -rf "$out/$name" "$out/$name.recording"
  "${limited[@]}" "$cs" record --out "$out/$name" "${options[@]}" -- python3 -W ignore "$here/record_torch.py" "$@" 2>&1
  is_status "$name" $? "${STATUS:-0}"
}
ask() { "$cs" query "$1" "$out/$2"; }
row() { "$cs" query "$1" "$out/$2" --format csv 2>/dev/null | tail -n +2; } # SQL RUN: without a header
value() { sed -n "s/.*\"$1\": \([0-9.]*\).*/\1/p"; } # KEY: of RESULT
program() { # the program in C, built once
  [ -x "$out/record_program" ] || "$nvcc" -o "$out/record_program" "$here/record_program.cu" -lcuda -ldl || { wrong "the program in C does not build"; return 1; }
}
number() { # NAME LEAST SQL RUN: the figure that this asks for is a number, and at least so much
  local figure
  figure=$(row "$3" "$4")
  awk -v figure="${figure:-none}" -v least="$2" 'BEGIN { exit !(figure ~ /^[0-9.e+]+$/ && figure + 0 >= least + 0) }' || wrong "$4: $1: ${figure:-none}, not $2 or more"
}
of_tokens() { # RUN TOKENS: of so many tokens kernels were recorded, each with its interval, and most are told apart as such
  number "kernels" $(($2 * 300)) "SELECT count(*) FROM kernels" "$1"
  number "kernels with an interval, as a share" 1 "SELECT avg(CASE WHEN path IS NULL THEN 0.0 ELSE 1.0 END) FROM kernels" "$1"
  number "steps that are tokens" $(($2 * 4 / 5)) "SELECT count(*) FROM steps WHERE phase = 'decode'" "$1"
}

part() { [[ " ${PARTS:-ways ends beside windows candle c cuda12 mps vllm starts profilers clients ncu soak nvtx launches place costs} " == *" $1 "* ]]; }
told() { echo --model-config "$out/$1.json" --work batch=1,prompt=64,dtype=bf16; }
rm -f "$out/record_program" "$out/hung.txt"
if part ways || part candle || part vllm; then
  for shape in smollm2 8b; do torch config --shape $shape --config "$out/$shape.json"; done
fi

nvidia-smi --query-gpu=name,driver_version --format=csv,noheader
part ways && echo "-- each way"
for mode in $(part ways && echo "${MODES-eager ranges started emit compile graph threads}"); do
  echo "[$mode]"
  # shellcheck disable=SC2046
  recorded "$mode" $(told smollm2) -- "$mode" --tokens 50
  ask "SELECT phase, count(*) AS steps, CAST(median(host_dur_ns) AS BIGINT) AS host_ns, CAST(median(gpu_dur_ns) AS BIGINT) AS gpu_ns FROM steps GROUP BY phase ORDER BY phase" "$mode"
  ask "SELECT kind, count(*) AS n, sum(CASE WHEN path IS NULL THEN 1 ELSE 0 END) AS without_interval, sum(CASE WHEN graph IS NULL THEN 0 ELSE 1 END) AS of_graphs, CAST(sum(gpu_dur_ns) AS BIGINT) AS ns FROM kernels GROUP BY kind ORDER BY n DESC" "$mode"
  of_tokens "$mode" "$([ "$mode" = threads ] && echo 200 || echo 50)"
done
for mode in $(part ways && echo "${MODES_8B-ranges}"); do
  echo "[$mode, 8b]"
  # shellcheck disable=SC2046
  recorded "$mode-8b" $(told 8b) -- "$mode" --shape 8b --tokens 30
  ask "SELECT phase, count(*) AS steps, CAST(median(host_dur_ns) AS BIGINT) AS host_ns, CAST(median(gpu_dur_ns) AS BIGINT) AS gpu_ns FROM steps GROUP BY phase ORDER BY phase" "$mode-8b"
  of_tokens "$mode-8b" 30
done
if part ends; then
echo "-- a forked worker that ends by _exit; no CUDA; a crash"
STATUS=4 recorded fork --follow-forks -- fork --tokens 20
number "kernels" 6000 "SELECT count(*) FROM kernels" fork
recorded forkserver --follow-forks -- forkserver --tokens 20
number "kernels" 6000 "SELECT count(*) FROM kernels" forkserver
STATUS=5 recorded none -- none
[ ! -e "$out/none" ] || wrong "none: there is a run of nothing"
"${limited[@]}" "$cs" record --out "$out/crash" -- python3 -W ignore -c 'import os, torch; torch.ones(1000, 1000, device="cuda").sum().item(); os.abort()' 2>&1 | tail -2
is_status crash "${PIPESTATUS[0]}" 134
"${limited[@]}" "$cs" record --out "$out/killed" -- python3 -W ignore -c '
import os, time, torch
began = time.time()
while time.time() < began + 5: torch.ones(1000, 1000, device="cuda").sum().item()
os.kill(os.getpid(), 9)' 2>&1 | tail -2
is_status killed "${PIPESTATUS[0]}" 137
number "kernels before it was killed" 1 "SELECT count(*) FROM kernels" killed
fi
if part windows; then
echo "-- kernels of 5 steps every 2 s, no ranges"
recorded windows --cupti 5/2s -- eager --tokens 300
ask "SELECT s.path, count(*) AS steps, count(k.step) AS with_kernels, CAST(median(k.n) AS BIGINT) AS kernels FROM spans s LEFT JOIN (SELECT step, count(*) AS n FROM kernels GROUP BY step) k ON k.step = s.step WHERE s.parent_seq IS NULL GROUP BY s.path ORDER BY s.path" windows
number "steps with kernels" 5 "SELECT count(DISTINCT step) FROM kernels" windows
fi
counted() { # RUN KERNELS: whether all that the program launched is there but for one in a hundred, with an interval, and by which CUPTI
  local kernels without
  IFS=, read -r kernels without < <(row "SELECT count(*), sum(CASE WHEN path IS NULL THEN 1 ELSE 0 END) FROM kernels WHERE kind = 'kernel'" "$1")
  echo "  $1: ${kernels:-0} of $2 kernels, ${without:-0} without an interval; $(python3 - "$out/$1/run.json" <<'P'
import json, sys
try:
    run = json.load(open(sys.argv[1]))
    environment = run["environment"]
    print("CUPTI", environment.get("cupti_version"), environment.get("cupti_library"), "error:", ((run.get("gpu") or {}).get("kernels") or {}).get("error"))
except Exception as error:
    print("no run:", error)
P
)"
  [ "${kernels:-0}" -le "$2" ] && [ "${kernels:-0}" -ge $(($2 - $2 / 100)) ] && [ "${without:-0}" = 0 ] ||
    wrong "$1: ${kernels:-0} of $2 kernels, ${without:-0} without an interval"
}
expect() { # RUN WHAT: so many records of kernels and copies, or `none`, and the finding that says why, or `any` of the two
  local said
  said=$(python3 - "$out/$1/run.json" "$2" 2>&1 <<'P'
import json, sys
run, expected = json.load(open(sys.argv[1])), sys.argv[2]
kernels = (run.get("gpu") or {}).get("kernels") or {}
why = kernels.get("error") or [finding["message"] for finding in run["verdict"]["findings"] if finding["code"] == "no_kernels"]
recorded = kernels.get("recorded", 0)
print(f"{recorded} kernels and copies{f'; {why}' if why else ''}")
asserted = {"none": not recorded and bool(why), "any": bool(recorded or why)}
sys.exit(not asserted.get(expected, str(recorded) == expected))
P
  ) && echo "  $1: $said" || wrong "$1: $said, and not $2"
}
if part c && program; then
echo "-- a program in C: 100 steps of three kernels; one that starts the driver and ends"
"${limited[@]}" "$cs" record --out "$out/c" -- "$out/record_program" 100 2>&1
is_status c $? 0
ask "SELECT path, count(*) AS steps FROM spans GROUP BY path" c
ask "SELECT name, count(*) AS n FROM kernels GROUP BY name ORDER BY name" c
counted c 300
number "steps that repeat" 90 "SELECT count(*) FROM spans WHERE path LIKE 'repeated%'" c
echo "-- the same without an end, interrupted (Ctrl-C)"
rm -rf "$out/int" "$out/int.recording"
# A shell has what it starts in the background ignore the signal.
env --default-signal=INT "${limited[@]}" "$cs" record --out "$out/int" -- "$out/record_program" 100000000 >"$out/int.txt" 2>&1 &
sleep 8
pkill -INT -x record_program
wait $!
is_status int $? 130
number "kernels" 1000 "SELECT count(*) FROM kernels" int
grep -q '"complete": true' "$out/int/run.json" || wrong "int: its run was not ended"
began=$(date +%s%N)
"${limited[@]}" "$cs" record --out "$out/init" -- "$out/record_program" init 2>&1
status=$? took=$((($(date +%s%N) - began) / 1000000))
echo "status $status after $took ms"
# Nothing to record is said by 1.
[ $status -le 1 ] && [ $took -lt 15000 ] || wrong "init: status $status after $took ms"
fi

cuda12() {
  local cudart cupti dirs compiler place places steps=200
  [ -n "${CUDA12:-}" ] || { echo "  SKIPPED: CUDA12 names no folder with libcudart.so.12 and libcupti.so.12"; return; }
  cudart=$(find -L "$CUDA12" -name libcudart.so.12 | head -n 1) cupti=$(find -L "$CUDA12" -name libcupti.so.12 | head -n 1)
  [ -n "$cudart" ] && [ -n "$cupti" ] || { echo "  SKIPPED: $CUDA12 lacks libcudart.so.12 or libcupti.so.12"; return; }
  cudart=$(realpath "$cudart") cupti=$(realpath "$cupti")
  dirs=$(dirname "$cudart"):$(dirname "$cupti")
  # There may be no other way to the driver.
  IFS=: read -ra places <<<"${LD_LIBRARY_PATH:-}"
  for place in "${places[@]}"; do [ ! -e "$place/libcuda.so.1" ] || dirs=$dirs:$place; done
  compiler=${CC:-$(command -v cc || echo gcc)}
  "$compiler" -O1 -o "$out/record_program_12" "$here/record_program_12.c" -L"$(dirname "$cudart")" -l:libcudart.so.12 &&
    "$compiler" -O1 -o "$out/record_program_12_cupti" "$here/record_program_12.c" -L"$(dirname "$cudart")" -L"$(dirname "$cupti")" -l:libcudart.so.12 \
      -Wl,--no-as-needed -l:libcupti.so.12 || { wrong "the programs of CUDA 12 do not build"; return; }
  LD_LIBRARY_PATH=$dirs "${limited[@]}" "$out/record_program_12" $steps 2>&1 | sed 's/^/  by itself: /'
  [ "${PIPESTATUS[0]}" = 0 ] || { echo "  SKIPPED: a program of CUDA 12 does not run on this machine"; return; }
  rm -rf "$out"/cuda12-*
  CANDLESCOPE_CUPTI=$cupti LD_LIBRARY_PATH=$dirs${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH} "${limited[@]}" "$cs" record --out "$out/cuda12-given" -- "$out/record_program_12" $steps 2>&1 | sed 's/^/  /'
  counted cuda12-given $((3 * steps))
  # Nothing but what the program brings.
  LD_LIBRARY_PATH=$dirs "${limited[@]}" "$cs" record --out "$out/cuda12-own" -- "$out/record_program_12_cupti" $steps 2>&1 | sed 's/^/  /'
  counted cuda12-own $((3 * steps))
  # The machine's CUPTI, which may be a newer one.
  LD_LIBRARY_PATH=${LD_LIBRARY_PATH:+$LD_LIBRARY_PATH:}$dirs "${limited[@]}" "$cs" record --out "$out/cuda12-machine" -- "$out/record_program_12_cupti" $steps 2>&1 | sed 's/^/  /'
  counted cuda12-machine $((3 * steps))
}
if part cuda12; then
echo "-- a program of CUDA 12: CUPTI 12 of a given path, its own, and the machine's"
cuda12
fi

mps() {
  local control=${MPS_CONTROL:-} place pids=() pid n ended=0
  for place in "$(command -v nvidia-cuda-mps-control)" /usr/bin/nvidia-cuda-mps-control /usr/local/nvidia/bin/nvidia-cuda-mps-control; do
    [ -n "$control" ] || [ ! -x "$place" ] || control=$place
  done
  [ -n "$control" ] || { echo "  SKIPPED: there is no nvidia-cuda-mps-control on this machine"; return; }
  # A socket's path is short.
  mps_folder=$(mktemp -d /tmp/mps.XXXXXX)
  mkdir "$mps_folder/log"
  PATH=$PATH:$(dirname "$control")
  export CUDA_MPS_PIPE_DIRECTORY=$mps_folder CUDA_MPS_LOG_DIRECTORY=$mps_folder/log PATH
  if ! timeout 20 "$control" -d >"$mps_folder/said" 2>&1; then
    echo "  SKIPPED: this machine does not let $(id -un) start MPS: $(tail -n 2 "$mps_folder/said" "$mps_folder"/log/* 2>/dev/null | tr '\n' ' ')"
    return
  fi
  for n in 1 2; do "${limited[@]}" "$out/record_program" 20000 >"$mps_folder/plain-$n" 2>&1 & pids+=($!); done
  for pid in "${pids[@]}"; do wait "$pid" || ended=1; done
  if [ $ended = 1 ]; then
    echo "  SKIPPED: programs do not run below MPS on this machine: $(cat "$mps_folder"/plain-* | sort -u | head -n 3 | tr '\n' ' ')"
    tail -n 4 "$mps_folder"/log/* | sed 's/^/    | /'
    return
  fi
  rm -rf "$out"/mps-*
  pids=()
  for n in 1 2; do "${limited[@]}" "$cs" record --out "$out/mps-$n" -- "$out/record_program" 5000 >"$out/mps-$n.txt" 2>&1 & pids+=($!); done
  for n in 1 2; do wait "${pids[n - 1]}"; is_status "mps-$n" $? 0; sed 's/^/  /' "$out/mps-$n.txt"; done
  for n in 1 2; do counted mps-$n 15000; done
  echo "  servers: $(echo get_server_list | timeout 10 "$control" | tr '\n' ' '); clients that came to them: $(grep -ci 'new client' "$mps_folder/log/control.log")"
  grep -iE 'new client|error|fail' "$mps_folder"/log/*.log | tail -n 8 | sed 's/^/    | /'
}
mps_ends() { # also where something failed
  local pid
  [ -n "${mps_folder:-}" ] || return 0
  pid=$(cat "$mps_folder"/nvidia-cuda-mps-control.pid 2>/dev/null)
  echo quit | timeout 10 nvidia-cuda-mps-control >/dev/null 2>&1
  if [ -n "$pid" ] && kill -0 "$pid" 2>/dev/null; then sleep 2; kill "$pid" 2>/dev/null; fi
  unset CUDA_MPS_PIPE_DIRECTORY CUDA_MPS_LOG_DIRECTORY
  rm -rf "$mps_folder"
  mps_folder=
}
if part mps && program; then
echo "-- two programs in C below MPS"
trap mps_ends EXIT
mps
mps_ends
fi

if part vllm; then
  echo "-- vLLM"
  # A cold one compiles for minutes: the first start is not recorded.
  vllm=(timeout -k 5 "${VLLM_LIMIT:-400}")
  if ! python3 -c 'import importlib.util, sys; sys.exit(importlib.util.find_spec("vllm") is None)'; then
    echo "  SKIPPED: $(command -v python3) has no vLLM"
  elif ! said=$(python3 -W ignore -c 'import vllm' 2>&1); then
    wrong "vLLM cannot be imported: $(tail -n 1 <<<"$said")"
  else
    mkdir -p "$out/vllm-model"
    cp "$out/smollm2.json" "$out/vllm-model/config.json"
    "${vllm[@]}" python3 -W ignore "$here/record_vllm.py" "$out/vllm-model" ${VLLM:+"$VLLM"} 2>&1 | grep RESULT | sed 's/^/  by itself: /'
    rm -rf "$out/vllm"
    "${vllm[@]}" "$cs" record --follow-forks --model-config "$out/smollm2.json" --work batch=4,prompt=64,dtype=bf16 --out "$out/vllm" -- python3 -W ignore "$here/record_vllm.py" "$out/vllm-model" ${VLLM:+"$VLLM"} 2>&1 | tail -n 15
    is_status vllm "${PIPESTATUS[0]}" 0
    number "kernels" 1 "SELECT count(*) FROM kernels" vllm
    for run in "$out"/vllm/run.json "$out"/vllm/*/run.json; do
      [ -f "$run" ] || continue
      ask "SELECT phase, count(*) AS steps, CAST(median(host_dur_ns) AS BIGINT) AS host_ns, CAST(median(gpu_dur_ns) AS BIGINT) AS gpu_ns FROM steps GROUP BY phase ORDER BY phase" "$(realpath --relative-to="$out" "$(dirname "$run")")"
    done
    echo "-- vLLM's server, kernels of 20 steps each 10 s, ended by SIGTERM"
    rm -rf "$out/vllm-server" "$out/vllm-server.recording"
    "${vllm[@]}" "$cs" record --attach-nvtx --follow-forks --cupti 20/10s --model-config "$out/smollm2.json" --work batch=4,prompt=64,dtype=bf16 --out "$out/vllm-server" -- \
      python3 -W ignore -m vllm.entrypoints.openai.api_server --model "$out/vllm-model" --load-format dummy --dtype bfloat16 --skip-tokenizer-init --enforce-eager \
      --max-model-len 256 --max-num-seqs 8 --max-num-batched-tokens 512 --gpu-memory-utilization 0.3 --host 127.0.0.1 --port "${VLLM_PORT:-8391}" >"$out/vllm-server.txt" 2>&1 &
    recording=$!
    python3 - "$out/vllm-model" "${VLLM_PORT:-8391}" "${VLLM_LIMIT:-400}" $recording <<'P' || { wrong "vLLM's server did not answer, see $out/vllm-server.txt"; tail -n 5 "$out/vllm-server.txt" | sed 's/^/  | /'; }
import json, os, sys, threading, time, urllib.request
model, port, limit, recording = sys.argv[1], sys.argv[2], float(sys.argv[3]), sys.argv[4]
ends = time.time() + limit - 60
while True:
    try:
        urllib.request.urlopen(f"http://127.0.0.1:{port}/health", timeout=5)
        break
    except OSError as error:
        if time.time() > ends or not os.path.exists(f"/proc/{recording}"):
            sys.exit(f"  {error}")
        time.sleep(1)
answered = []
def client(n):
    until = time.time() + 25
    while time.time() < until:
        body = {"model": model, "prompt": [1 + (7 * at + n) % 1000 for at in range(64)], "max_tokens": 32, "ignore_eos": True, "temperature": 0}
        asked = urllib.request.Request(f"http://127.0.0.1:{port}/v1/completions", json.dumps(body).encode(), {"Content-Type": "application/json"})
        try:
            answered.append(json.load(urllib.request.urlopen(asked, timeout=60))["usage"]["completion_tokens"])
        except OSError as error:
            print(f"  {error}: {getattr(error, 'read', lambda: b'')()[:200]}")
            return
threads = [threading.Thread(target=client, args=(n,)) for n in range(4)]
[thread.start() for thread in threads]
[thread.join() for thread in threads]
print(f"  {len(answered)} requests answered, {sum(answered)} tokens")
sys.exit(not answered)
P
    # What `record` started, which is what `timeout` started.
    pkill -TERM -P "$(pgrep -P $recording | head -n 1)"
    wait $recording
    is_status "vLLM's server" $? 0
    tail -n 4 "$out/vllm-server.txt" | sed 's/^/  /'
    number "kernels of the server" 1 "SELECT count(*) FROM kernels" vllm-server
    for run in "$out"/vllm-server/run.json "$out"/vllm-server/*/run.json; do
      [ -f "$run" ] || continue
      ask "SELECT phase, count(*) AS steps, CAST(median(host_dur_ns) AS BIGINT) AS host_ns, CAST(median(gpu_dur_ns) AS BIGINT) AS gpu_ns FROM steps GROUP BY phase ORDER BY phase" "$(realpath --relative-to="$out" "$(dirname "$run")")"
    done
  fi
fi

if part starts; then
echo "-- starts: processes and threads, in C and in PyTorch; what those that fail say is kept in $out/failed"
RECORD=()
if program; then
  started c-process "${STARTS:-40}" 60 "$out/record_program" 20
  kernels_of_starts c-process 60
  for threads in ${THREADS:-1 2 8 32}; do
    started "c-threads-$threads" "${STARTS:-40}" 60 "$out/record_program" contexts "$threads"
    kernels_of_starts "c-threads-$threads" $((threads * 100))
  done
fi
started torch-process "${TORCH_STARTS:-10}" 120 python3 -W ignore "$here/record_starts.py" process
kernels_of_starts torch-process "some 200"
started torch-threads "${TORCH_STARTS:-10}" 120 python3 -W ignore "$here/record_starts.py" threads 8
kernels_of_starts torch-threads "some 1600"
echo "  $FAILED_STARTS of $ALL_STARTS starts failed"
[ "$FAILED_STARTS" = 0 ] || wrong "$FAILED_STARTS of $ALL_STARTS starts failed, see $out/failed"
fi
if part candle && [ -n "${CANDLE:-}" ]; then
for shape in ${CANDLE_SHAPES:-smollm2}; do
echo "-- candle, by itself and from outside: $shape"
model=smollm2-135m of='' tokens_of=50
[ "$shape" = smollm2 ] || model=llama-3-8b of=-$shape tokens_of=30
candle=("$CANDLE" profile --model "config:$model" --device cuda:0 --dtype bf16 --prompt-tokens 64 --max-new-tokens $tokens_of --ignore-eos --warmup 1 --repeats 2 --no-progress)
rm -rf "$out/candle-plain-graph$of" "$out/candle-graph$of.recording" "$out/candle$of" "$out/candle-outside$of" "$out/candle-outside$of.recording" "$out/candle-plain$of" "$out/candle-graph$of"
"${limited[@]}" "${candle[@]}" --cupti --out "$out/candle$of" 2>&1 | tail -3
is_status "candle$of" "${PIPESTATUS[0]}" 0
# shellcheck disable=SC2046
"${limited[@]}" "$cs" record $(told "$shape") --out "$out/candle-outside$of" -- "${candle[@]}" --gpu-timing off --cupti=off --out "$out/candle-plain$of" 2>&1 | tail -3
is_status "candle-outside$of" "${PIPESTATUS[0]}" 0
of_tokens "candle-outside$of" $((2 * tokens_of))
"${limited[@]}" "$cs" record $(told "$shape") --out "$out/candle-graph$of" -- "${candle[@]}" --cuda-graph --gpu-timing off --cupti=off --out "$out/candle-plain-graph$of" 2>&1 | tail -3
is_status "candle-graph$of" "${PIPESTATUS[0]}" 0
compared=0
beside() { # A B OPTIONS…: compares the two, if both were recorded
  [ -d "$out/$1" ] && [ -d "$out/$2" ] || { echo "  SKIPPED: there is no $1 or no $2 (PARTS=ways makes those of PyTorch)"; return; }
  compared=$((compared + 1))
  "$cs" compare "$out/$1" "$out/$2" "${@:3}" || wrong "$1 and $2 are not compared"
}
beside "candle$of" "ranges$of" --allow tokens
beside "candle-graph$of" "graph$of" --programs --allow tokens
for other in eager compile; do beside "candle-outside$of" "$other$of" --programs --allow tokens; done
[ $compared -gt 0 ] || wrong "candle: nothing to compare with, make it with PARTS=ways"
beside "eager$of" "compile$of" --programs
done
fi
if part clients && program; then
echo "-- CUPTI has another client, by its interface for several (cuptiSubscribe_v2): before recording begins, and after"
for at in first newer; do
library=$([ $at = first ] && echo "${CLIENT_CUPTI:-libcupti.so.13}" || echo "${NEWER:-}")
[ -n "$library" ] || continue
if ! python3 -c 'import ctypes, sys; ctypes.CDLL(sys.argv[1]).cuptiSubscribe_v2' "$library" 2>/dev/null; then
  echo "  SKIPPED: $library cannot be loaded, or has no cuptiSubscribe_v2"
  continue
fi
for when in early late; do
  rm -rf "$out/client-$at-$when" "$out/client-$at-$when.recording"
  CANDLESCOPE_CUPTI=$library "${limited[@]}" "$cs" record --out "$out/client-$at-$when" -- "$out/record_program" client "$when" "$library" 2>&1 | sed 's/^/  /'
  is_status "client-$at-$when" "${PIPESTATUS[0]}" 0
done
# Whoever is first has CUPTI, where it serves one; where it serves several, both may have it.
expect "client-$at-early" "$([ $at = first ] && echo none || echo any)"
expect "client-$at-late" "$([ $at = first ] && echo 1000 || echo any)"
done
fi
if part ncu && program; then
if [ -z "${NCU:-}" ]; then
echo "  SKIPPED: NCU names no ncu"
else
echo "-- Nsight Compute around the recording, and in it"
rm -rf "$out"/ncu-around* "$out"/ncu-inside*
"${limited[@]}" "$NCU" --target-processes all --launch-count 3 "$cs" record --out "$out/ncu-around" -- "$out/record_program" 20 >"$out/ncu-around.txt" 2>&1
grep -q "Nsight Compute runs this command" "$out/ncu-around.txt" && echo "  ncu-around: refused" || wrong "ncu-around: $(tail -n 3 "$out/ncu-around.txt" | tr '\n' ' ')"
"${limited[@]}" "$cs" record --follow-forks --out "$out/ncu-inside" -- "$NCU" --launch-count 3 "$out/record_program" 20 2>&1 | tail -n 12 | sed 's/^/  /'
is_status ncu-inside "${PIPESTATUS[0]}" 0
# A run of one process, or of several: the program's is one of them.
inside=$(find "$out/ncu-inside" -name run.json 2>/dev/null | head -n 1)
expect "$(realpath -m --relative-to="$out" "$(dirname "${inside:-$out/ncu-inside/run.json}")")" 100
fi
fi
if part soak && program; then
echo "-- memory of the program, ${SOAK_SECONDS:-120} s each: kernels of 5 steps a second, and all"
for way in ${SOAK_WAYS:-5/1s all}; do
  name=soak-${way//\//-}
  rm -rf "$out/$name" "$out/$name.recording"
  env --default-signal=INT timeout -k 5 $((${SOAK_SECONDS:-120} + 60)) "$cs" record --cupti "$way" --out "$out/$name" -- "$out/record_program" 100000000 >"$out/$name.txt" 2>&1 &
  recording=$!
  sleep 5
  # `timeout`, `record`, the program.
  pid=$(pgrep -P "$(pgrep -P $recording | head -n 1)" | head -n 1)
  [ -n "$pid" ] || { wrong "$name: the program did not start: $(tail -n 1 "$out/$name.txt")"; wait $recording; continue; }
  : >"$out/$name.rss"
  for _ in $(seq $((${SOAK_SECONDS:-120} / 5 + 1))); do
    awk '/^VmRSS/ { print $2 / 1024 }' "/proc/$pid/status" >>"$out/$name.rss"
    sleep 5
  done
  kill -INT "$pid"
  wait $recording
  is_status "$name" $? 130
  # From the second third to the last, by medians: what is set up at the beginning is no growth. A step is three kernels, a copy and a memset.
  steps=$(row "SELECT count(*) FROM steps" "$name")
  python3 - "$out/$name.rss" "$out/$name/run.json" "$way" "${steps:-0}" <<'P' || wrong "$name: memory grows, or kernels are gone that nothing counts"
import json, statistics, sys
rss = [float(line) for line in open(sys.argv[1])]
run, way, steps = json.load(open(sys.argv[2])), sys.argv[3], int(sys.argv[4])
kernels = (run.get("gpu") or {}).get("kernels") or {}
third = max(len(rss) // 3, 1)
early, late = statistics.median(rss[third:2 * third] or rss), statistics.median(rss[-third:])
# Of steps: what ran after the last one is recorded, too, as outside of the window, and lost copies of no step count as lost.
untold = 5 * steps - kernels.get("attributed", 0) - kernels.get("dropped", 0)
print(f"  {len(rss)} samples, MiB: first {rss[0]:.1f}, second third {early:.1f}, last {late:.1f}, most {max(rss):.1f}; {steps} steps; {kernels}; steps: {run.get('steps')}")
if way == "all":
    print(f"  of {5 * steps} kernels, copies and memsets {untold} are neither in a step nor dropped")
sys.exit(not (late - early <= 8 and kernels.get("recorded") and (way != "all" or -max(200, kernels.get("dropped", 0) / 10) <= untold <= 10)))
P
  tail -n 3 "$out/$name.txt" | sed 's/^/  /'
  rm -rf "$out/$name"
done
fi
if part profilers; then
echo "-- another profiler in the program, and around it"
recorded kineto-inside -- ranges --tokens 20 --kineto "$out/k.json"
# CUPTI serves who comes first.
of_tokens kineto-inside 20
if [ -n "${NSYS:-}" ]; then
  rm -rf "$out"/nsys-around*
  "${limited[@]}" "$NSYS" profile -t cuda,nvtx --sample=none --cpuctxsw=none --force-overwrite=true -o "$out/around" "$cs" record --out "$out/nsys-around" -- \
    python3 -W ignore "$here/record_torch.py" ranges --tokens 20 2>&1 | tail -4
  is_status nsys-around "${PIPESTATUS[0]}" 0
  expect nsys-around none
fi
fi
if part beside; then
echo "-- beside PyTorch's profiler: kernels of the same tokens"
said=$(torch ranges --tokens 50 --kineto "$out/kineto.json")
echo "$said"
row "SELECT count(*), sum(gpu_dur_ns) / 1e3 FROM kernels WHERE kind = 'kernel' AND step >= (SELECT min(step) FROM spans WHERE phase = 'prefill')" ranges >"$out/beside.csv"
# Two starts of one program: the same kernels, whose times differ a little.
python3 - "$(value kineto_kernels <<<"$said")" "$(value kineto_us <<<"$said")" "$out/beside.csv" <<'P' || wrong "beside: kernels of the run \`ranges\` (PARTS=ways, MODES=ranges) are not those that PyTorch's profiler counts"
import sys
try:
    theirs, their_us = int(sys.argv[1]), float(sys.argv[2])
    ours, our_us = (float(cell) for cell in open(sys.argv[3]).read().split(","))
except ValueError as error:
    sys.exit(f"  there are not two counts: {error}")
print(f"  {theirs} kernels of {their_us:.0f} us by PyTorch's profiler, {ours:.0f} of {our_us:.0f} us recorded: {ours - theirs:+.0f}, {our_us / their_us - 1 if their_us else 0:+.2%}")
sys.exit(not (theirs > 0 and ours == theirs and abs(our_us / their_us - 1) <= 0.01))
P
fi

under() { # WAY NAME COMMAND…: the command, recorded in this way; what recording itself says goes to costs.log. Its status is 0 if that was done
  local way=$1 run=$out/cost-$2 options=() trial='' cupti=${CANDLESCOPE_CUPTI:-} library=${CANDLESCOPE_INJECT_LIBRARY:-} status said
  shift 2
  case $way in
    plain) "${limited[@]}" "$@"; return ;;
    loaded) options=(--cupti off --no-nvtx) ;;
    ranges) options=(--cupti off) ;;
    5/5s) options=(--cupti 5/5s --no-nvtx) ;;
    5/100) options=(--cupti 5/100) ;;
    all) ;;
    before) library=${BEFORE:?names no library} ;;
    newer) cupti=${NEWER:?names no CUPTI} ;;
    older) cupti=${OLDER:?names no CUPTI} ;;
    attached) trial=no-records,no-calls ;;
    calls) trial=no-records ;;
    kernels) trial=no-calls ;;
    pinned | buffer=* | device-buffer=*) trial=$way ;;
    *) echo "record.sh: no way of recording is called $way" >&2; return 2 ;;
  esac
  rm -rf "$run" "$run.recording"
  env ${library:+CANDLESCOPE_INJECT_LIBRARY="$library"} ${trial:+CANDLESCOPE_CUPTI_TRIAL="$trial"} ${cupti:+CANDLESCOPE_CUPTI="$cupti"} \
    "${limited[@]}" "$cs" record --out "$run" "${options[@]}" -- "$@" 2>>"$out/costs.log"
  status=$?
  [ $status = 0 ] || wrong "$way: status $status, see $out/costs.log" >&2
  [ $status != 124 ] && [ $status != 137 ] || echo "$way" >>"$out/hung.txt"
  # Where the recorder did not do what its way says, the figure is of something else.
  said=$(python3 - "$way" "$run/run.json" 2>&1 <<'P'
import json, sys
way, path = sys.argv[1:]
try:
    kernels = (json.load(open(path)).get("gpu") or {}).get("kernels") or {}
except (OSError, ValueError) as error:
    sys.exit(f"{way}: {error}")
recorded, fault = kernels.get("recorded", 0), kernels.get("error")
if not fault and way in ("attached", "calls") and recorded:
    fault = f"{recorded} kernels were recorded"
elif not fault and way not in ("loaded", "ranges", "attached", "calls", "5/5s", "5/100") and not recorded:
    fault = "no kernel was recorded"
if fault:
    sys.exit(f"{way}: {fault}")
P
  ) || { wrong "$said" >&2; status=1; }
  rm -rf "$run" "$run.recording"
  return $status
}
have() { # WAYS…: those that can be used here; one that did not end in time once would take as long again
  local way
  for way in "$@"; do
    ! grep -qxF -- "$way" "$out/hung.txt" 2>/dev/null || continue
    [ "$way" != before ] || [ -n "${BEFORE:-}" ] || continue
    [ "$way" != newer ] || [ -n "${NEWER:-}" ] || continue
    [ "$way" != older ] || [ -n "${OLDER:-}" ] || continue
    [ "$way" != proton ] || python3 -c "import triton.profiler" 2>/dev/null || continue
    [ "$way" != nsys ] || [ -n "${NSYS:-}" ] || continue
    echo "$way"
  done
}

if part nvtx; then
  echo "-- NVTX ranges by push and pop and by start and end: PyTorch, 31 a token, by token in turns in one process, by itself and recorded"
  rm -f "$out"/nvtx-{plain,recorded}.rows
  for round in $(seq "${NVTX_ROUNDS:-3}"); do
    for way in plain ranges; do
      under "$way" nvtx python3 -W ignore "$here/record_torch.py" turns --tokens "${NVTX_TOKENS:-450}" --rows "$out/nvtx.rows" |
        grep -o '"ms": [0-9.]*' | sed "s/^/  $way /" || rm -f "$out/nvtx.rows"
      # Turns of different processes are different ones.
      [ ! -f "$out/nvtx.rows" ] || sed "s/^/$round-/" "$out/nvtx.rows" >>"$out/nvtx-$([ $way = plain ] && echo plain || echo recorded).rows"
      rm -f "$out/nvtx.rows"
    done
  done
  "$here/ratios.py" none "$out/nvtx-plain.rows" "$out/nvtx-recorded.rows" || wrong "nvtx: there is nothing to compare"
  if program; then
    echo "  in C, nanoseconds a range:"
    for round in $(seq "${NVTX_ROUNDS:-3}"); do
      for way in plain ranges; do echo "  $way $(under $way nvtx "$out/record_program" ranges 60)"; done
    done
  fi
fi
if part launches && program; then
  echo "-- what a launch takes, in C: nanoseconds of the call, one after the other (hot) and with 2 MiB read in between (cold)"
  rm -f "$out"/launches-{hot,cold}.rows
  for round in $(seq "${LAUNCH_ROUNDS:-5}"); do
    for way in $(have ${WAYS:-plain loaded attached calls kernels all before newer older pinned buffer=256 buffer=32768 device-buffer=32768}); do
      said=$(under "$way" launches "$out/record_program" launches "${BLOCKS:-40}") || continue
      for kind in hot cold; do
        figure=$(value $kind <<<"$said")
        [ -z "$figure" ] || echo "$round $way $figure" >>"$out/launches-$kind.rows"
      done
    done
  done
  for kind in hot cold; do "$here/ratios.py" plain "$out/launches-$kind.rows" || wrong "launches, $kind: there is nothing to compare"; done
fi
if part place; then
  echo "-- what all kernels cost, in one process: tokens of windows of 20 beside those between them, of which the first 20 and the last 5 do not count"
  rm -rf "$out/place" "$out/place.recording"
  "${limited[@]}" "$cs" record --cupti 20/80 --out "$out/place" -- python3 -W ignore "$here/record_torch.py" ranges --tokens "${PLACE_TOKENS:-800}" 2>&1 | sed 's/^/  /'
  "$cs" query "SELECT s.step, s.host_dur_ns, CASE WHEN k.step IS NULL THEN 0 ELSE 1 END AS recorded FROM steps s LEFT JOIN (SELECT DISTINCT step FROM kernels) k
    ON k.step = s.step WHERE s.phase = 'decode' ORDER BY s.step" "$out/place" --format csv --limit 0 >"$out/place.csv"
  python3 - "$out/place.csv" >"$out/place.rows" <<'P'
import csv, itertools, statistics, sys
rows = [(int(row["recorded"]), float(row["host_dur_ns"]) / 1e6) for row in csv.DictReader(open(sys.argv[1]))]
stretches = [(key, [ms for _, ms in group]) for key, group in itertools.groupby(rows, lambda row: row[0])]
for turn, ((a, window), (b, between)) in enumerate(itertools.pairwise(stretches)):
    # The window and what follows it; the first and the last token of a window lie at its ends.
    window, between = window[1:-1], between[20:-5]
    if a == 1 and window and between:
        print(turn, "window", statistics.median(window))
        print(turn, "between", statistics.median(between))
P
  "$here/ratios.py" between "$out/place.rows" || wrong "place: there is nothing to compare"
fi
if part costs; then
echo "-- costs, in turns: milliseconds a token"
rm -f "$out/costs.rows"
for round in $(seq "${ROUNDS:-3}"); do
  for way in $(have ${COSTS:-plain loaded ranges 5/5s 5/100 all kineto proton nsys}); do
    case $way in
      kineto) ms=$(torch ranges --tokens "$tokens" --kineto "$out/k.json" | value ms) ;;
      proton) ms=$(torch ranges --tokens "$tokens" --proton "$out/proton" | value ms) ;;
      nsys)
        ms=$("${limited[@]}" "$NSYS" profile -t cuda,nvtx --sample=none --cpuctxsw=none --force-overwrite=true -o "$out/nsys" python3 -W ignore "$here/record_torch.py" ranges --tokens "$tokens" 2>/dev/null |
          tr '\r' '\n' | value ms) ;;
      *) ms=$(under "$way" torch python3 -W ignore "$here/record_torch.py" ranges --tokens "$tokens" | value ms) || ms= ;;
    esac
    echo "  $way ${ms:-failed}"
    [ -n "$ms" ] && echo "$round $way $ms" >>"$out/costs.rows" || wrong "costs, $way: no figure"
  done
done
"$here/ratios.py" plain "$out/costs.rows" || wrong "costs: there is nothing to compare"
fi
if [ -s "$out/wrong.txt" ]; then
  echo "-- $(wc -l <"$out/wrong.txt") things are not as they should be"
  cat "$out/wrong.txt"
  exit 1
fi
echo "-- nothing is wrong"
