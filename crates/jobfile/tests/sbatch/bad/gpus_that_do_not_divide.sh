#!/bin/bash
#SBATCH --nodes=2 --gpus=3
#SBATCH --wrap="python train.py"
