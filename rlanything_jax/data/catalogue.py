"""The data sets: where their raw files are expected, how a record becomes a problem or a question, who made them."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from rlanything_jax.envs.code.contests import (
    from_apps,
    from_code_contests,
    from_codeforces,
    from_live_code_bench,
)
from rlanything_jax.envs.code.humaneval import from_humaneval
from rlanything_jax.envs.code.mbpp import from_mbpp
from rlanything_jax.envs.code.problem import Problem
from rlanything_jax.envs.math.question import Question, from_gsm8k, from_math500

Convert = Callable[[Mapping[str, Any]], Problem | Question]


@dataclasses.dataclass(frozen=True)
class DataSet:
    """One data set.

    files: split -> the raw files that hold it, as patterns below the folder of raw files; all patterns are tried.
    choose: where one file holds all splits, the split of an item by its id.
    """

    name: str
    title: str
    convert: Convert
    item: type[Problem] | type[Question]
    files: Mapping[str, tuple[str, ...]]
    licence: str
    homepage: str
    citation: str
    version: str = "1.0.0"
    choose: Callable[[str], str] | None = None

    def paths(self, raw: Path) -> dict[str, list[Path]]:
        """Split -> its raw files below `raw`. FileNotFoundError where there are none at all."""
        found = {
            split: sorted({path for p in patterns for path in raw.glob(p)})
            for split, patterns in self.files.items()
        }
        if not any(found.values()):
            wanted = ", ".join(pattern for patterns in self.files.values() for pattern in patterns)
            raise FileNotFoundError(f"no raw files of {self.name} in {raw}: looked for {wanted}")
        return {split: paths for split, paths in found.items() if paths}


def _mbpp_split(identity: str) -> str:
    """The splits of the paper, by number."""
    number = int(identity.rpartition("/")[2])
    return next(split for split, last in MBPP_SPLITS.items() if number <= last)


MBPP_SPLITS = {"prompt": 10, "test": 510, "validation": 600, "train": 10**9}
_MBPP_HOME = "https://github.com/google-research/google-research/tree/master/mbpp"
_MBPP_PAPER = "Austin et al., Program Synthesis with Large Language Models, 2021, arXiv:2108.07732"


def _by_split(folder: str, *splits: str) -> dict[str, tuple[str, ...]]:
    return {split: (f"{folder}/{split}*.json*",) for split in splits}


DATA_SETS: Mapping[str, DataSet] = {
    data_set.name: data_set
    for data_set in (
        DataSet(
            name="humaneval",
            title="HumanEval: functions from docstrings",
            convert=from_humaneval,
            item=Problem,
            files={"test": ("humaneval/HumanEval.jsonl*",)},
            licence="MIT",
            homepage="https://github.com/openai/human-eval",
            citation="Chen et al., Evaluating Large Language Models Trained on Code, 2021, arXiv:2107.03374",
        ),
        DataSet(
            name="mbpp",
            title="MBPP: short Python functions from one sentence",
            convert=from_mbpp,
            item=Problem,
            files={split: ("mbpp/mbpp.jsonl",) for split in MBPP_SPLITS},
            licence="CC-BY-4.0",
            homepage=_MBPP_HOME,
            citation=_MBPP_PAPER,
            choose=_mbpp_split,
        ),
        DataSet(
            name="mbpp_sanitized",
            title="MBPP, the part checked by hand",
            convert=from_mbpp,
            item=Problem,
            files={split: ("mbpp/sanitized-mbpp.json",) for split in MBPP_SPLITS},
            licence="CC-BY-4.0",
            homepage=_MBPP_HOME,
            citation=_MBPP_PAPER,
            choose=_mbpp_split,
        ),
        DataSet(
            name="apps",
            title="A selection of APPS: contest programs and functions",
            convert=from_apps,
            item=Problem,
            files={"train": ("apps*/*.jsonl",)},
            licence="MIT",
            homepage="https://github.com/hendrycks/apps",
            citation="Hendrycks et al., Measuring Coding Challenge Competence With APPS, 2021, arXiv:2105.09938",
        ),
        DataSet(
            name="codeforces",
            title="Codeforces programs that read stdin",
            convert=from_codeforces,
            item=Problem,
            files={"train": ("codeforces*/*.jsonl",)},
            licence="MIT",
            homepage="https://codeforces.com",
            citation="Zhao, 2025, a collection of 408 Codeforces problems",
        ),
        DataSet(
            name="code_contests",
            title="CodeContests: contest programs with accepted solutions",
            convert=from_code_contests,
            item=Problem,
            files=_by_split("code_contests", "train", "valid", "test"),
            licence="CC-BY-4.0",
            homepage="https://github.com/google-deepmind/code_contests",
            citation="Li et al., Competition-Level Code Generation with AlphaCode, 2022, arXiv:2203.07814",
        ),
        DataSet(
            name="live_code_bench",
            title="LiveCodeBench, code generation",
            convert=from_live_code_bench,
            item=Problem,
            files=_by_split("live_code_bench", "test"),
            licence="CC-BY-4.0",
            homepage="https://livecodebench.github.io",
            citation="Jain et al., LiveCodeBench, 2024, arXiv:2403.07974",
        ),
        DataSet(
            name="gsm8k",
            title="GSM8K: grade school mathematics in words",
            convert=from_gsm8k,
            item=Question,
            files=_by_split("gsm8k", "train", "test"),
            licence="MIT",
            homepage="https://github.com/openai/grade-school-math",
            citation="Cobbe et al., Training Verifiers to Solve Math Word Problems, 2021, arXiv:2110.14168",
        ),
        DataSet(
            name="math500",
            title="MATH-500: competition mathematics",
            convert=from_math500,
            item=Question,
            files={"test": ("math500/*.jsonl",)},
            licence="MIT",
            homepage="https://github.com/openai/prm800k",
            citation="Hendrycks et al., 2021, arXiv:2103.03874; Lightman et al., 2023, arXiv:2305.20050",
        ),
    )
}
