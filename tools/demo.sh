#!/usr/bin/env bash
# What mstar does, in under a minute once built.
set -euo pipefail
cd "$(dirname "$0")/.."

# Debian's Python has the packages that tools/packages.txt names; another one on PATH may not.
python=python3
"$python" -c 'import numpy, PIL' 2>/dev/null || python=/usr/bin/python3
"$python" tools/demo.py "$@"

cat <<'EOF'

Go on:
  build/release/bin/mstar serve
      and open http://127.0.0.1:8000 for the page; the OpenAI API is under http://127.0.0.1:8000/v1
  build/release/bin/mstar run "a green triangle moving up on a black background" --out clip.mp4
      one request without a server
  build/release/bin/mstar serve FOLDER
      a real checkpoint: a Cosmos3, Llama, Qwen or Whisper folder of Hugging Face, or a .gguf file
  make smollm2
      fetches a small chat model to try that with
EOF
