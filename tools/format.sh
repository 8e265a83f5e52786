#!/usr/bin/env bash
# Formats the C++ files that differ from the last commit; with --all every one; with --check only
# says which of all would change, and fails. Needs clang-format 14.
set -euo pipefail
cd "$(dirname "$0")/.."

every_file() { git ls-files --cached --others --exclude-standard "$@"; }
changed_file() { git diff --name-only --diff-filter=d --relative HEAD -- "$@"; git ls-files --others --exclude-standard "$@"; }

case "${1:-}" in
  --check | --all) list=every_file ;;
  "") list=changed_file ;;
  *) echo "usage: tools/format.sh [--check | --all]" >&2; exit 2 ;;
esac
mapfile -t files < <("$list" '*.h' '*.cc')
[ ${#files[@]} -eq 0 ] && exit 0
if [ "${1:-}" = "--check" ]; then
  clang-format --dry-run -Werror "${files[@]}" && echo "format: ok"
else
  clang-format -i "${files[@]}"
fi
