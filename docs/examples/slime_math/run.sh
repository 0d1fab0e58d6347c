#!/usr/bin/env bash
# Train the task math with Slime, without a line of Python.  usage: run.sh PROBLEMS [flags of Slime]
#
#   SLIME=slime MODEL=models/Qwen3-4B CHECKPOINT=models/Qwen3-4B_torch_dist \
#     run.sh problems.jsonl --actor-num-gpus-per-node 8 --colocate --rollout-num-gpus-per-engine 2
#
# FOCUS writes the prompt data and the configuration into OUT and says which flags name them; the
# model, its checkpoint and the GPUs are said to Slime as always.
set -euo pipefail
: "${SLIME:=slime}" "${MODEL:=models/Qwen3-4B}" "${CHECKPOINT:=${MODEL}_torch_dist}"
: "${MODEL_ARGS_OF:=qwen3-4B}" "${OUT:=slime-math}"
problems=$1
shift

source "$SLIME/scripts/models/$MODEL_ARGS_OF.sh"
flags=$(focus slime-args --task math --problems "$problems" --model "$MODEL" \
  --budget 32 --set search.warmup=16 --steps 100 --problems-per-step 8 --learning-rate 1e-6 \
  --output "$OUT/slime.yaml" --force)
eval "FOCUS_ARGS=($flags)"

export PYTHONPATH="$SLIME${PYTHONPATH:+:$PYTHONPATH}" CUDA_DEVICE_MAX_CONNECTIONS=1
exec python "$SLIME/train.py" "${MODEL_ARGS[@]}" \
  --ref-load "$CHECKPOINT" --load "$OUT/checkpoints" --save "$OUT/checkpoints" --save-interval 20 \
  "${FOCUS_ARGS[@]}" "$@"
