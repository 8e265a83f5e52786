#!/bin/bash
# Fails when an object compiled for one instruction set defines a symbol that the linker may also
# take for others (weak: inline functions, template instances): it could keep the copy with
# instructions that this processor lacks. Only weak symbols inside the set's own namespace pass.
#   tools/check_isa_objects.sh [BUILD_FOLDER]
set -euo pipefail
build=${1:-build/dev}
status=0
found=0
while IFS= read -r -d '' object; do
  found=1
  set_name=$(sed -E 's,.*_(portable|avx512_bf16|avx512|avx2|amx)\.dir/.*,\1,' <<<"$object")
  [ "$set_name" = portable ] && continue
  # Symbols of nested names: _ZN5mstar<length><set>…
  own="^_ZN[A-Z]*5mstar${#set_name}${set_name}[0-9]"
  weak=$(nm --defined-only "$object" | awk '$2 ~ /^[WVuwv]$/ {print $3}' | grep -Ev "$own" || true)
  if [ -n "$weak" ]; then
    status=1
    echo "$object defines symbols that other sets' objects may be given:"
    c++filt <<<"$weak" | sed 's/^/  /'
  fi
done < <(find "$build" \( -path '*_avx*.dir/*' -o -path '*_amx.dir/*' \) -name '*.o' -print0)
if [ "$found" = 0 ]; then
  echo "no objects of instruction sets in $build: build first" >&2
  exit 2
fi
[ "$status" = 0 ] && echo "no shared symbols in the objects of instruction sets"
exit "$status"
