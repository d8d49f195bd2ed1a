#!/bin/bash
#SBATCH --gres=gpu:1
#SBATCH -t 30
python train.py
