#!/bin/bash
#SBATCH --job-name=sweep
#SBATCH --array=0-31%4
#SBATCH --dependency=afterok:4711
python train.py --seed "$SLURM_ARRAY_TASK_ID"
