#!/usr/bin/env bash
# Empties the folder that archives go into, or makes it: `dist.sh` calls this before anything is built. Nothing is removed that
# `dist.sh` did not make: a folder that holds anything else, or that is a place of somebody's, is refused.
# Usage: scripts/dist_folder.sh DIR
set -Eeuo pipefail
refuse() { echo "error: OUT=$1: $2. Name a folder that is empty, absent, or holds what dist.sh made" >&2; exit 1; }
out=$1
checkout=$(cd "$(dirname "$0")/.." && pwd -P)
if [ -L "$out" ]; then refuse "$out" "it is a link"; fi
if [ -e "$out" ] && ! [ -d "$out" ]; then refuse "$out" "it is no folder"; fi
mkdir -p "$out"
place=$(cd "$out" && pwd -P)
home=$(cd "${HOME:-/}" 2>/dev/null && pwd -P || echo /)
# Of the root nothing is left.
above=${place%/}
for kept in "$checkout" "$home"; do
  case $kept/ in "$above"/*) refuse "$out" "it is, or holds, $kept" ;; esac
done
# Names of what an earlier start left: folders, which it packs and removes, archives, and their sums.
ours() { case $1 in SHA256SUMS | candlescope-[0-9]*.[0-9]*.[0-9]*-*-*) true ;; *) false ;; esac; }
shopt -s dotglob nullglob
for path in "$place"/*; do
  ours "${path##*/}" || refuse "$out" "it holds ${path##*/}, which dist.sh did not make"
done
for path in "$place"/*; do rm -rf "$path"; done
