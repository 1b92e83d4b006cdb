#!/bin/bash
# sbatch deploy/slurm.sh ogbn-products --epochs 10
#SBATCH --job-name=batchgnn
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=1
#SBATCH --cpus-per-task=16
#SBATCH --requeue
set -euo pipefail

# The ranks meet on the first host. A job that is put back into the queue goes on with its run.
first=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)

# One torchrun a host; it starts the ranks of its host, which share the cores.
srun torchrun \
    --nnodes="$SLURM_JOB_NUM_NODES" \
    --nproc-per-node="${RANKS_PER_HOST:-2}" \
    --rdzv-backend=c10d \
    --rdzv-endpoint="$first:${PORT:-29500}" \
    --rdzv-id="$SLURM_JOB_ID" \
    -m pyg_batchgnn train "$@" \
    --run-folder "runs/$SLURM_JOB_ID" --resume auto
