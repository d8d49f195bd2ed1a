#!/bin/bash
#SBATCH --cpus-per-task=4 --mem-per-cpu=1G
#SBATCH hetjob
#SBATCH --gres=gpu:8
srun ./reader : ./trainer
