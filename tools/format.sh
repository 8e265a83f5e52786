#!/usr/bin/env bash
# Formats all C++ files; with --check only says which ones differ and fails. Needs clang-format 14.
set -euo pipefail
cd "$(dirname "$0")/.."

mapfile -t files < <(git ls-files --cached --others --exclude-standard '*.h' '*.cc')
[ ${#files[@]} -eq 0 ] && exit 0
if [ "${1:-}" = "--check" ]; then
  clang-format --dry-run -Werror "${files[@]}" && echo "format: ok"
else
  clang-format -i "${files[@]}"
fi
