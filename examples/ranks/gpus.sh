#!/usr/bin/env bash
# Train on all GPUs of this machine, one rank each.
set -euo pipefail
gpus=$(nvidia-smi --list-gpus | wc -l)
exec torchrun --standalone --nproc-per-node "$gpus" --max-restarts 3 \
  -m holdfast train env=arena run=arena-gpus device=cuda "trainer.shards=$gpus" "env.num_envs=$((8 * gpus))" "$@"
