#!/usr/bin/env bash
# Holds our GPT-2 and the reference of its test against transformers and PyTorch, which it installs (several gigabytes)
# into a virtual environment of its own: gpt2.sh [DIRECTORY OF THE ENVIRONMENT]. Nothing else needs them.
set -euo pipefail
cd "$(dirname "$0")/../.."
venv=${1:-target/peers/gpt2}
if ! "$venv/bin/python" -c 'import torch, transformers' 2>/dev/null; then
  python3 -m venv "$venv"
  "$venv/bin/pip" install -q numpy safetensors torch transformers
fi
# With the features of all tests: others would build candle anew.
cargo build -q --workspace --features candlescope-tests/nvtx,candlescope-tests/services,candlescope-server/services \
  --example logits
"$venv/bin/python" tests/peers/gpt2.py target/debug/examples/logits
