#!/usr/bin/env bash
# Builds the page into web/dist, when its sources are newer than what was built. Fetches Node when it is missing or old.
set -euo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/../lib.sh"
cd "$root/web"
node_ready
# A stamp of what it was installed and built from, so that a second call costs nothing.
stamp() { cat "$@" 2>/dev/null | sha256sum | cut -d' ' -f1; }
lock=$(stamp package.json package-lock.json)
if [ "$(cat node_modules/.stamp 2>/dev/null)" != "$lock" ]; then
  # The lock names what this project uses; `ci` also wants optional parts for machines that nobody here has.
  npm ci --no-audit --no-fund --loglevel=silent >&2 || npm install --no-save --no-audit --no-fund --loglevel=error >&2
  echo "$lock" >node_modules/.stamp
fi
mapfile -t sources < <(find src public index.html vite.config.ts svelte.config.js tsconfig.json -type f | LC_ALL=C sort)
built=$(stamp package-lock.json "${sources[@]}")
if [ ! -e dist/index.html ] || [ "$(cat node_modules/.built 2>/dev/null)" != "$built" ]; then
  npm run --silent build >&2
  echo "$built" >node_modules/.built
fi
