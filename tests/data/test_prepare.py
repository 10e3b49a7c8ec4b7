import subprocess
import sys
from pathlib import Path

import pytest

from rlanything_jax.data.__main__ import main
from rlanything_jax.data.catalogue import DATA_SETS
from rlanything_jax.data.raw import Rejected, read

READ = """
import sys
from rlanything_jax.data import Loader, load
from rlanything_jax.data.__main__ import main
code = main(["prepare", f"--raw={sys.argv[1]}", f"--out={sys.argv[2]}", "--only=mbpp"])
print(code, next(Loader(load("mbpp", "train", sys.argv[2]), seed=0)).kind, "tensorflow" in sys.modules)
"""


def test_tensorflow_is_not_imported(raw: Path, tmp_path: Path) -> None:
    command = [sys.executable, "-c", READ, str(raw), str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.stdout.splitlines()[-1:] == ["0 call False"], done.stdout + done.stderr


def test_the_command_counts_records_and_rejected_ones(
    raw: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["prepare", f"--raw={raw}", f"--out={tmp_path}", "--only=gsm8k"]) == 0
    out = capsys.readouterr().out
    assert "gsm8k: train.jsonl, record 24, answer: holds no final answer" in out
    words = out.replace("│", " ").split()
    assert words[words.index("train") - 1 :][:4] == ["gsm8k", "train", "23", "1"]
    assert "Downloading" not in words


def test_the_command_says_what_it_lacks(
    raw: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["prepare", f"--raw={raw}", f"--out={tmp_path}", "--only=apps"]) == 1
    assert "error: no raw files of apps in" in capsys.readouterr().err
    assert main(["prepare", f"--raw={raw}/absent", f"--out={tmp_path}"]) == 1
    assert "error: --raw: no folder" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("name", "count", "rejected"),
    [
        ("humaneval", 164, 0),
        ("mbpp", 974, 0),
        ("mbpp_sanitized", 427, 0),
        ("codeforces", 408, 0),
        ("math500", 500, 0),
    ],
)
def test_released_files_are_read_whole(data: Path, name: str, count: int, rejected: int) -> None:
    data_set = DATA_SETS[name]
    (path,) = {path for paths in data_set.paths(data).values() for path in paths}
    items = list(read(path, data_set.convert))
    left_out = [item for item in items if isinstance(item, Rejected)]
    assert (len(items) - len(left_out), len(left_out)) == (count, rejected), left_out[:3]


def test_released_selection_of_apps_repeats_itself(data: Path) -> None:
    data_set = DATA_SETS["apps"]
    (path,) = data_set.paths(data)["train"]
    items = list(read(path, data_set.convert))
    reasons = [item.reason.split()[0] for item in items if isinstance(item, Rejected)]
    assert (len(items), reasons.count("repeats")) == (150, 21)
