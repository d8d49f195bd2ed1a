#!/usr/bin/env python3
#SBATCH --ntasks=4 --ntasks-per-node=2 --gpus-per-task=2
#SBATCH --signal=USR2@30
import os
print(os.environ["RANK"])
