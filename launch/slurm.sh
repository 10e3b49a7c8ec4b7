#!/usr/bin/env bash
#SBATCH --job-name=rlanything
#SBATCH --ntasks-per-node=1
#SBATCH --requeue
#SBATCH --open-mode=append
#SBATCH --signal=TERM@180
# Trains on the nodes of a Slurm job, one process a node; where time is up or the job is preempted, it saves and queues again.
#
#     sbatch --nodes=4 --time=24:00:00 launch/slurm.sh --config=configs/NAME.py --workdir=SHARED/DIR [flags of rlanything_jax.train]
#
# The repository and the workdir are on a file system that all nodes share. EXTRAS=gpu,... installs extras of pyproject.toml.

cd "${SLURM_SUBMIT_DIR:?submit this with sbatch, from the root of the repository}" || exit
# shellcheck source-path=SCRIPTDIR source=setup.sh
source launch/setup.sh "${EXTRAS:-}"

status=0
srun --kill-on-bad-exit=0 python -m rlanything_jax.train "$@" || status=$?
# 75: interrupted and saved. 143: ended by SIGTERM before there was anything to save.
if ((status == 75 || status == 143)); then
  exec scontrol requeue "$SLURM_JOB_ID"
fi
exit "$status"
