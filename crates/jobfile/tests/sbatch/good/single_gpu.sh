#!/usr/bin/env bash
#SBATCH -J finetune
#SBATCH -p gpu -t 4:00:00
#SBATCH --gpus=1 -c8
#SBATCH --mem-per-gpu=80G

python finetune.py --epochs 3
