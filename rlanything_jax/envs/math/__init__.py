"""Mathematics: questions with a reference answer, and whether an answer is that one."""

from rlanything_jax.envs.math.answer import Match, final_answer, match
from rlanything_jax.envs.math.question import Question

__all__ = ["Match", "Question", "final_answer", "match"]
