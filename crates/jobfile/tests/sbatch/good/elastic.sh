#!/bin/bash
#SBATCH --nodes=2-4 --gres=gpu:a100:8,tmpfs:100G
#SBATCH --deadline=2026-11-20T18:00:00
#SBATCH --hint=nomultithread
torchrun --nnodes=2:4 train.py
