"""Tasks: what a policy is asked to do, how tasks are rewritten, and the pool that remembers all of them."""

from rlanything_jax.tasks.pool import TaskPool
from rlanything_jax.tasks.task import Task

__all__ = ["Task", "TaskPool"]
