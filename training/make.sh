#!/bin/sh
# Makes the demo model from nothing: training/make.sh [SEED]
# Phases that are done are not done again; a training run that was stopped goes on. WORK, TOKENS and ARCH can be set.
set -eu
case "${1:-}" in -h|--help) sed -n '2,3s/^# //p' "$0"; exit;; esac
cd "$(dirname "$0")"
seed=${1:-1}
WORK=${WORK:-$PWD/work}
mkdir -p "$WORK"

PYTHON=${PYTHON:-python3}
if ! "$PYTHON" -c 'import gguf, torch, tokenizers' 2>/dev/null; then
    [ -x "$WORK/venv/bin/python" ] || "$PYTHON" -m venv "$WORK/venv"
    PYTHON=$WORK/venv/bin/python
    "$PYTHON" -m pip install -q -r requirements.txt
fi

# Memory that a step frees is kept for the next one.
export MALLOC_MMAP_THRESHOLD_=4294967296 MALLOC_TRIM_THRESHOLD_=8589934592 MALLOC_TOP_PAD_=268435456

[ -f "$WORK/tokenizer.json" ] || "$PYTHON" tokenizer.py --seed "$seed" --work "$WORK"
"$PYTHON" data.py --seed "$seed" --work "$WORK"
[ -f "$WORK/model.pt" ] || "$PYTHON" train.py --seed "$seed" --work "$WORK" --arch "${ARCH:-qwen2}" --resume ${TOKENS:+--tokens "$TOKENS"}
[ -f "$WORK/model.pt" ] || exit 1
"$PYTHON" export.py --work "$WORK"
"$PYTHON" heldout.py --seed "$seed" --work "$WORK"
"$PYTHON" recall.py "$WORK/model.pt" --work "$WORK"
