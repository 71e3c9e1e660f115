#!/usr/bin/env bash
# Applies each patch of this folder to a copy of the tree, and runs the engine's laws there: a test has to
# fail each time. A patch that no test notices, that no longer applies or does not compile is a failure of
# this script. `run.sh NAME...` runs only these.
set -euo pipefail

here="$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)"
root="$(git -C "$here" rev-parse --show-toplevel)"
copy="$root/target/mutations/tree"
export CARGO_TARGET_DIR="$root/target/mutations/build"
# Built for a few seconds' run.
export CARGO_PROFILE_DEV_DEBUG=0 CARGO_INCREMENTAL=0 RUST_BACKTRACE=0

cd "$root"
mkdir -p "$copy"
files() { git ls-files -z --cached --others --exclude-standard | sort -z | uniq -z; }
# Only what differs is copied, so that only that is compiled again.
files | while IFS= read -r -d '' file; do
  if [ -f "$file" ] && ! cmp -s "$file" "$copy/$file"; then
    mkdir -p "$copy/$(dirname "$file")"
    cp "$file" "$copy/$file"
  fi
done
cd "$copy"
find . -type f -printf '%P\0' | sort -z | comm -z -23 - <(cd "$root" && files) | xargs -0 -r rm --

build() { cargo test --locked --quiet -p allrail-engine --test it --no-run; }
# Most are caught by few seeds; 200 are run where they are not.
laws() { few && all; }
few() { LAW_SEEDS=15 timeout 900 cargo test --locked --quiet -p allrail-engine --test it loopback::; }
all() { LAW_SEEDS=200 timeout 900 cargo test --locked --quiet -p allrail-engine --test it loopback::; }

patches=("$here"/*.patch)
if [ $# -gt 0 ]; then patches=("${@/%/.patch}"); patches=("${patches[@]/#/$here/}"); fi

echo "without a mutation"
build
if ! all >"$root/target/mutations/log" 2>&1; then
  cat "$root/target/mutations/log"
  echo "error: the laws do not hold without a mutation" >&2
  exit 1
fi

survived=0
for patch in "${patches[@]}"; do
  name="$(basename "$patch" .patch)"
  if ! patch --quiet --batch -p1 <"$patch" >"$root/target/mutations/log"; then
    cat "$root/target/mutations/log" >&2
    echo "error: \`$name\` does not apply; make it anew" >&2
    exit 1
  fi
  if ! build 2>"$root/target/mutations/log"; then
    cat "$root/target/mutations/log" >&2
    echo "error: \`$name\` does not compile; make it anew" >&2
    exit 1
  fi
  if laws >"$root/target/mutations/log" 2>&1; then
    echo "SURVIVED  $name"
    survived=$((survived + 1))
  else
    tests="$(sed -n 's/^test \(.*\) \.\.\. FAILED$/\1/p; s/^    \([a-z_:]*\)$/\1/p' \
      "$root/target/mutations/log" | sort -u | sed 's/.*:://' | paste -sd ' ')"
    echo "caught    $name  ($(wc -w <<<"$tests"): ${tests%% *})"
  fi
  patch --quiet --batch --reverse -p1 <"$patch"
done

if [ "$survived" -gt 0 ]; then
  echo "error: $survived of ${#patches[@]} mutations survived" >&2
  exit 1
fi
echo "all ${#patches[@]} mutations were caught"
