#!/bin/bash -l
#SBATCH --gres=gpu:nvidia_a100-sxm4-80gb:4
#SBATCH --signal=B:USR1@120
#SBATCH --requeue
#SBATCH --exclusive
#SBATCH -o /dev/null

save() { kill -USR1 "$child"; wait "$child"; }
trap save USR1
python train.py &
child=$!
wait "$child"
