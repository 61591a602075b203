#!/usr/bin/env bash
# Regenerate acccocoa/v1 from proto/. With --check: fail when what is committed is not what would be generated.
set -euo pipefail
cd "$(dirname "$0")/.."
python=${PYTHON:-python3}
out=$(mktemp -d)
trap 'rm -rf "$out"' EXIT
# the plugins stand beside the interpreter, which need not be on PATH
PATH="$("$python" -c 'import os, sys; print(os.path.dirname(sys.executable))'):$PATH" \
    "$python" -m grpc_tools.protoc -I proto --python_out="$out" --grpc_python_out="$out" \
    --mypy_out="$out" --mypy_grpc_out="$out" proto/acccocoa/v1/*.proto 2>"$out/log" ||
    { cat "$out/log" >&2; exit 1; }
touch "$out/acccocoa/v1/__init__.py"
if [ "${1:-}" = --check ]; then
    diff -r --exclude=__pycache__ "$out/acccocoa/v1" acccocoa/v1 ||
        { echo "acccocoa/v1 is stale: run proto/generate.sh and commit" >&2; exit 1; }
else
    cp "$out"/acccocoa/v1/* acccocoa/v1/
fi
