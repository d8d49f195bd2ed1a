#!/bin/bash
#SBATCH --nodes=four
#SBATCH --gpu=2
#SBATCH --time=24h
#SBATCH --mem=1.5G
#SBATCH -N=2
#SBATCH ntasks=4
#SBATCH --job-name='my job
#SBATCH --gres=gpu:a100:2,gpu:v100:2
#SBATCH --signal=USR9@60
#SBATCH --deadline=yesterday
#SBATCH --cpus-per-task=0
#SBATCH --partition
echo
