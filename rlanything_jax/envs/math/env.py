r"""The mathematics environment: a question, an answer in a box and, where allowed, Python to compute it with."""

from __future__ import annotations

import re

from rlanything_jax.envs.base import Observation
from rlanything_jax.envs.math.answer import final_answer, match
from rlanything_jax.envs.math.question import Question

_TOOL = re.compile(r"^[ \t]*```(?:python|py)\s*?\n((?:(?!```).)*?)^[ \t]*```\s*\Z", re.DOTALL | re.MULTILINE)
_BOX = re.compile(r"\\(?:boxed|fbox)\s*\{")
_SHOWN = 500  # characters of the end of what a tool wrote
_TIME_S, _OUTPUT_KB = 5.0, 64  # of a tool call


class MathEnv:
    r"""Asks `question` for at most `max_steps` responses; the first with an answer in a box ends the episode.

    With `tool=True` a response that has no box and ends in a ```python block is a tool call: the code runs in the sandbox, and
    the next observation is what it wrote, so it is read and never trained on. `score` is 1.0 and `won` true if the answer is
    right. `info` has after a step 'admissible' (a box, or a tool call where these are allowed) and, with `labels=True` for an
    answer, 'label' (+1 or -1). A step raises RuntimeError where there is no sandbox, ImportError where formulas cannot be
    compared.
    """

    def __init__(
        self, question: Question, max_steps: int = 1, labels: bool = True, tool: bool = False
    ) -> None:
        if max_steps < 1:
            raise ValueError(f"max_steps={max_steps} leaves no answer to give: use at least 1")
        self.question = question
        self.max_steps = max_steps
        self._labels = labels
        self._tool = tool
        self._steps = 0
        self._done = True

    def reset(self) -> Observation:
        """Starts an episode."""
        self._steps, self._done = 0, False
        return Observation(self.question.statement, (), 0.0, False, False)

    def step(self, response: str) -> Observation:
        """Takes a response; RuntimeError where no episode is running."""
        if self._done:
            raise RuntimeError(f"the episode of {self.question.id} is over or was not begun: call reset()")
        self._steps += 1
        if _BOX.search(response):
            self._done = True
            right = match(final_answer(response), self.question.answer).equal
            label = {"label": 1 if right else -1} if self._labels else {}
            text = f"The answer is {'right' if right else 'wrong'}."
            return Observation(text, (), float(right), right, True, {"admissible": True, **label})
        self._done = self._steps >= self.max_steps
        call = _TOOL.search(response) if self._tool else None
        text = _run(call[1]) if call else "There is no answer in a box."
        return Observation(text, (), 0.0, False, self._done, {"admissible": call is not None})

    def close(self) -> None:
        """Ends the episode; nothing else is held."""
        self._done = True


def _run(code: str) -> str:
    """The end of what a program wrote, and how it ended if not well."""
    # Imported here because few runs call tools.
    from rlanything_jax.envs.code.sandbox import run

    result = run(code, timeout_s=_TIME_S, output_kb=_OUTPUT_KB)
    written = [f"{name}:\n{text.strip()[-_SHOWN:]}" for name, text in
               (("Output", result.stdout), ("Errors", result.stderr)) if text.strip()]  # fmt: skip
    if result.status != "ok":
        written.append(f"The program ended with: {result.status}")
    return "\n".join(written) or "The program wrote nothing."
