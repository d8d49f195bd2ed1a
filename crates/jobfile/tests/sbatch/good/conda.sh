#!/bin/bash
# Fine-tunes on whatever GPU is free.

#SBATCH --time=12:00:00
#SBATCH -C "a100|h100" --gpus-per-node=2
#SBATCH --begin=now+1hour
#SBATCH --no-requeue
#SBATCH --licenses=matlab:1
#SBATCH --comment="winter sweep"

module load cuda/12.1
source "$HOME/miniconda3/etc/profile.d/conda.sh"
conda activate bert
cd "$SLURM_SUBMIT_DIR"
#SBATCH --gres=gpu:8
python train.py
