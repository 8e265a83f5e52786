#!/usr/bin/env bash
# Configures (once) and builds one preset: tools/build.sh PRESET [JOBS] [TARGET…]
set -euo pipefail
cd "$(dirname "$0")/.."

preset=$1
jobs=${2:-$(nproc)}
[ -f "build/$preset/build.ninja" ] || cmake --preset "$preset" >"build-$preset.log" 2>&1 || {
  cat "build-$preset.log"
  exit 1
}
rm -f "build-$preset.log"
ninja -C "build/$preset" -j "$jobs" "${@:3}"
