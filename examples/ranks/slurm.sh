#!/usr/bin/env bash
#SBATCH --job-name=holdfast
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=1
#SBATCH --cpus-per-task=8
#SBATCH --time=24:00:00
#SBATCH --signal=TERM@120
# Eight ranks on each of two nodes. Submit with: sbatch slurm.sh. A job that ran out of time is resumed by submitting it again.
set -euo pipefail
first=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)
exec srun torchrun --nnodes "$SLURM_NNODES" --nproc-per-node "$SLURM_CPUS_PER_TASK" --max-restarts 3 \
  --rdzv-id "$SLURM_JOB_ID" --rdzv-backend c10d --rdzv-endpoint "$first:29500" \
  -m holdfast train env=arena run=arena-slurm trainer.shards=16 env.num_envs=64 "runs_dir=$SLURM_SUBMIT_DIR/runs" "$@"
