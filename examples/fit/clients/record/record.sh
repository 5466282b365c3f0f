#!/usr/bin/env bash
# What curl sends when it tries again, by itself or by hand.
set -euo pipefail
cd "$(mktemp -d)"
printf hello > a.txt
printf '{"amount": 1, "note": "hello"}' > body.json

retry() { key=$1 && shift && curl -sS -o answer --retry 2 --retry-delay 1 --retry-all-errors -H "Idempotency-Key: $key" "$@" "$URL/$key"; }
again() { key=$1 && shift && for _ in 1 2; do curl -s -o answer -H "Idempotency-Key: $key" "$@" "$URL/$key" || true; done; }

retry curl-form --data 'amount=1&note=hello'
retry curl-json --json @body.json
retry curl-files -F amount=1 -F 'file=@a.txt;type=text/plain'
retry curl-upload -T a.txt
retry curl-expect -H 'Expect: 100-continue' --json @body.json
again curl-files-again -F amount=1 -F 'file=@a.txt;type=text/plain'
again curl-chunks -X POST -H 'Transfer-Encoding: chunked' --json @body.json
