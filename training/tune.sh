#!/bin/sh
# Trains a finished demo model a little more, on all it knows and on first prompts above all: training/tune.sh [FILE]
# FILE is what export.py wrote, by default the bundled one. WORK, TOKENS, THREADS and SEED can be set.
set -eu
case "${1:-}" in -h|--help) sed -n '2,3s/^# //p' "$0"; exit;; esac
[ -z "${1:-}" ] || set -- "$(realpath "$1")"
cd "$(dirname "$0")"
WORK=${WORK:-$PWD/work/tune}
SEED=${SEED:-2} # not that of the first training: other documents
PYTHON=${PYTHON:-python3}
if ! "$PYTHON" -c 'import gguf, torch, tokenizers' 2>/dev/null; then
    [ -x work/venv/bin/python ] || "$PYTHON" -m venv work/venv
    PYTHON=work/venv/bin/python
    "$PYTHON" -m pip install -q -r requirements.txt
fi
export MALLOC_MMAP_THRESHOLD_=4294967296 MALLOC_TRIM_THRESHOLD_=8589934592 MALLOC_TOP_PAD_=268435456

[ -f "$WORK/base.pt" ] || "$PYTHON" begin.py "$@" --work "$WORK"
"$PYTHON" data.py --tuning --seed "$SEED" --work "$WORK" --short-shards 4 --long-shards 2 --shard-tokens 250000
[ -f "$WORK/model.pt" ] || "$PYTHON" train.py --seed "$SEED" --work "$WORK" --base "$WORK/base.pt" --resume \
    --tokens "${TOKENS:-1e6}" --short 0.7 --batch 8192 --small 1 --lr 5e-3 --adam-lr 6e-4 --warm-up 4e4 --decay 0.8 \
    --eval-minutes 0 --eval-items 10 ${THREADS:+--threads "$THREADS"}
[ -f "$WORK/model.pt" ] || exit 1
"$PYTHON" export.py --work "$WORK"
