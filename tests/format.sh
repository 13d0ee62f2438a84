#!/usr/bin/env bash
# Holds every C++ file to .clang-format. Remedy: clang-format-14 -i FILE.
# Prints the files that differ; counts as one test.
cd "$(dirname "$0")/.." || exit 1
mapfile -t files < <(git ls-files '*.cc' '*.h' 2>/dev/null)
((${#files[@]} > 0)) || mapfile -t files < <(find src apps tests bench python -name '*.cc' -o -name '*.h')
failed=0
for file in "${files[@]}"; do
  if ! clang-format-14 "$file" | cmp -s - "$file"; then
    echo "$file: not as .clang-format says; clang-format-14 -i $file"
    failed=$((failed + 1))
  fi
done
if ((failed > 0)); then
  echo "0 passed, 1 failed"
  exit 1
fi
echo "1 passed, 0 failed"
