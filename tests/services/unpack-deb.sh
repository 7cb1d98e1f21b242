#!/usr/bin/env bash
# Unpacks a Debian package into a directory of its own; neither root nor the system's package lists are needed.
# Usage: tests/services/unpack-deb.sh PACKAGE DIRECTORY
set -euo pipefail
package=$1 into=$2
mkdir -p "$(dirname "$into")"
work=$(mktemp -d "$into.XXXXXX")
trap 'rm -rf "$work"' EXIT
cd "$work"
# As root, apt would download as a user who may not write here.
apt=(apt-get -o APT::Sandbox::User=root -o Acquire::Retries=3)
if ! "${apt[@]}" download -qq "$package" >&2 2>/dev/null; then
  # A fresh image has no package lists. Ours are private, so that no root is needed.
  mkdir -p lists/partial archives/partial
  apt+=(-o "Dir::State::Lists=$work/lists" -o "Dir::Cache=$work" -o Acquire::Languages=none)
  "${apt[@]}" update -qq >&2
  "${apt[@]}" download -qq "$package" >&2
fi
dpkg -x ./"$package"_*.deb unpacked
rm -rf "$into"
mv unpacked "$into"
