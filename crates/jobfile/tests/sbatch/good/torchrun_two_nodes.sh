#!/bin/bash
#SBATCH --job-name=llm-pretrain
#SBATCH --account=nlp
#SBATCH --partition=gpu-long --qos=normal
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=1          # torchrun starts the rest
#SBATCH --gres=gpu:h100:8
#SBATCH --cpus-per-task=64
#SBATCH --mem=512G
#SBATCH --time=2-00:00:00
#SBATCH --output=logs/%x-%j.out
#SBATCH --error=logs/%x-%j.err
#SBATCH --mail-type=END,FAIL
#SBATCH --mail-user=ada@example.org

set -euo pipefail
head=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)
export OMP_NUM_THREADS=$SLURM_CPUS_PER_TASK
srun torchrun --nnodes "$SLURM_NNODES" --nproc_per_node 8 \
  --rdzv_backend c10d --rdzv_endpoint "$head:29500" pretrain.py --config big.yaml
