#!/bin/sh
#SBATCH --job-name="tokenise corpus"
#SBATCH --ntasks=1
#SBATCH --cpus-per-task=16
#SBATCH --mem-per-cpu=2G
#SBATCH --time=90
#SBATCH --chdir=../data
#SBATCH --export=LC_ALL=C,THREADS=16
#SBATCH --nice

./tokenise --threads "$THREADS"
