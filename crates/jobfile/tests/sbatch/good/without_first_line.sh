#SBATCH --nodes=1
#SBATCH --gpus-per-node=foo9:2
echo hello
