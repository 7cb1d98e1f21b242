#!/bin/sh
# candle's own examples qwen and t5, patched by a few lines, on a CUDA device: modules, MFU, MBU and kernels by module.
#
# Usage: candle_examples.sh PROGRAMS CANDLESCOPE OUT
#   PROGRAMS     folder with qwen, qwen-work, t5 and weights: tests/candle_examples/build.sh --release --features cuda prints it
#   CANDLESCOPE  the command, any build
set -eu
exec "$(dirname "$0")/../candle_examples/run.sh" "$1" "$2" "$3" cuda
