"""Fixtures of the whole suite."""

import dataclasses
import importlib.util
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import jax
import numpy as np
import pytest
from ml_collections import ConfigDict
from tokenizers import Tokenizer
from tokenizers.decoders import ByteLevel as ByteLevelDecoder
from tokenizers.models import BPE
from tokenizers.pre_tokenizers import ByteLevel

from rlanything_jax.models import ModelConfig, Params, init, unstack
from rlanything_jax.models.chat import Chat
from rlanything_jax.models.chat_template import ChatTemplate
from rlanything_jax.models.pretrained import Model, save_pretrained
from rlanything_jax.models.tokenizer_files import Specials

ROOT = Path(__file__).resolve().parent.parent


@pytest.fixture(scope="session")
def data() -> Path:
    """The folder of real data sets: RLANYTHING_DATA, or shared/data beside the repository."""
    folder = Path(os.environ.get("RLANYTHING_DATA", ROOT.parent / "shared" / "data"))
    if not folder.is_dir():
        pytest.skip(f"no data sets at {folder}: set RLANYTHING_DATA to their folder")
    return folder


@pytest.fixture(scope="session")
def read_config() -> Callable[[Path], ConfigDict]:
    """Reads a config file, given by its path from the root, as the command line does."""

    def read(path: Path) -> ConfigDict:
        spec = importlib.util.spec_from_file_location(f"config_{path.stem}", ROOT / path)
        assert spec and spec.loader
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        return module.get_config().lock()

    return read


@pytest.fixture(scope="session")
def compiled(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    """Keeps compiled programs on disk for the rest of the session; returns the variables that share them with a process."""
    options = {
        "jax_compilation_cache_dir": str(tmp_path_factory.mktemp("compiled")),
        "jax_persistent_cache_min_compile_time_secs": 0,
        "jax_persistent_cache_min_entry_size_bytes": -1,
    }
    for name, value in options.items():
        jax.config.update(name, value)
    yield {name.upper(): str(value) for name, value in options.items()}
    jax.config.update("jax_compilation_cache_dir", None)


@pytest.fixture(scope="session")
def sandbox() -> None:
    """Programs can be run here."""
    from rlanything_jax.envs.code.sandbox import run

    try:
        run("pass", timeout_s=30)
    except RuntimeError as error:
        pytest.skip(str(error).splitlines()[1])


TINY = ModelConfig(
    vocab_size=280, embed_dim=16, layers=2, heads=4, kv_heads=2, head_dim=8, ff_dim=24, qkv_bias=True
)


@pytest.fixture(scope="session")
def model() -> ModelConfig:
    """The shape of a tiny random model."""
    return TINY


@pytest.fixture(scope="session")
def stacked() -> Params:
    """Random norms and biases too, which are ones and zeros at first; large enough to tell texts apart."""
    rng = np.random.default_rng(0)

    def draw(path: tuple, x: jax.ShapeDtypeStruct) -> np.ndarray:
        mean = 1.0 if "norm" in jax.tree_util.keystr(path) else 0.0
        return rng.normal(mean, 0.4, x.shape).astype(np.float32)

    return jax.tree_util.tree_map_with_path(draw, jax.eval_shape(lambda k: init(TINY, k), jax.random.key(0)))


@pytest.fixture(scope="session")
def params(stacked: Params) -> Params:
    """The same, for generation."""
    return unstack(stacked, TINY)


@pytest.fixture(scope="session")
def chat_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A checkpoint folder with a tiny random model, a byte-level tokenizer and the ChatML template."""
    tokenizer = Tokenizer(BPE({c: i for i, c in enumerate(sorted(ByteLevel.alphabet()))}, []))
    tokenizer.pre_tokenizer, tokenizer.decoder = ByteLevel(add_prefix_space=False), ByteLevelDecoder()
    tokenizer.add_special_tokens(["<|im_start|>", "<|im_end|>"])
    source = (ROOT / "tests/models/templates/smollm2.jinja").read_text()
    chat = Chat(tokenizer, {"default": ChatTemplate(source, "smollm2.jinja")}, Specials({}, ()))
    config = dataclasses.replace(TINY, qkv_bias=False)
    model = Model(config, init(config, jax.random.key(0)), tokenizer, chat)
    folder = tmp_path_factory.mktemp("checkpoint") / "tiny"
    save_pretrained(model, folder)
    return folder


@pytest.fixture(scope="session")
def make_tiny_chat(
    compiled: dict[str, str], read_config: Callable[[Path], ConfigDict], chat_folder: Path
) -> Callable[[], ConfigDict]:
    """Makes a config of tests/tiny_chat_config.py."""

    def make() -> ConfigDict:
        config = read_config(Path("tests/tiny_chat_config.py"))
        for role in config.checkpoint:
            config.checkpoint[role] = str(chat_folder)
        return config

    return make


def _maker(
    read_config: Callable[[Path], ConfigDict], path: str, factory: pytest.TempPathFactory
) -> Callable[[], ConfigDict]:
    """Makes configs of a file; all of them share one warm start."""
    cache = factory.mktemp("warm_start")

    def make() -> ConfigDict:
        config = read_config(Path(path))
        config.pretrain.cache = str(cache)
        return config

    return make


@pytest.fixture(scope="session")
def make_tiny(
    compiled: dict[str, str],
    read_config: Callable[[Path], ConfigDict],
    tmp_path_factory: pytest.TempPathFactory,
) -> Callable[[], ConfigDict]:
    """Makes a config of tests/tiny_config.py."""
    return _maker(read_config, "tests/tiny_config.py", tmp_path_factory)


@pytest.fixture(scope="session")
def make_tiny_code(
    compiled: dict[str, str],
    read_config: Callable[[Path], ConfigDict],
    tmp_path_factory: pytest.TempPathFactory,
) -> Callable[[], ConfigDict]:
    """Makes a config of tests/tiny_code_config.py."""
    return _maker(read_config, "tests/tiny_code_config.py", tmp_path_factory)


@pytest.fixture(scope="session")
def make_tiny_code_chat(
    compiled: dict[str, str],
    read_config: Callable[[Path], ConfigDict],
    chat_folder: Path,
    tmp_path_factory: pytest.TempPathFactory,
) -> Callable[[], ConfigDict]:
    """Makes a config of configs/code_smollm2.py in miniature, on a data set of a few functions in the format of MBPP."""
    from rlanything_jax.data.builders import prepare

    raw, prepared = tmp_path_factory.mktemp("raw"), tmp_path_factory.mktemp("prepared")
    records = [
        {
            "task_id": number,
            "text": f"Write a function to add {k}.",
            "code": f"def add(x):\n    return x + {k}",
            "test_list": [f"assert add({x}) == {x + k}" for x in range(3)],
        }
        for first in (1, 11, 511, 601)  # of the splits prompt, test, validation and train
        for k, number in enumerate(range(first, first + 3))
    ]
    (raw / "mbpp").mkdir()
    (raw / "mbpp" / "mbpp.jsonl").write_text("\n".join(map(json.dumps, records)))
    prepare("mbpp", raw, prepared)

    def make() -> ConfigDict:
        config = read_config(Path("configs/code_smollm2.py"))
        config.world.data = str(prepared)
        for role in config.checkpoint:
            config.checkpoint[role] = str(chat_folder)
        config.update(
            {
                "iterations": 1,
                "tasks_per_iteration": 2,
                "rollouts_per_task": 2,
                "votes_per_step": 2,
                "eval": {"tasks": 2, "judged": 1},
                "adapt": {"max_tokens": 8, "attempts": 1, "length_buckets": (3072,)},
                "sampler": {"max_action_tokens": 8, "turn_buckets": (1536,), "length_buckets": (1792,)},
                "trainer": {"tokens_per_batch": 3072, "length_buckets": (3072,)},
                "judge": {"max_tokens": 8, "rows": 2, "length_buckets": (2560,)},
            }
        )
        return config

    return make


@pytest.fixture
def tiny(make_tiny: Callable[[], ConfigDict]) -> ConfigDict:
    return make_tiny()


@pytest.fixture(scope="session")
def opened(make_tiny: Callable[[], ConfigDict]) -> Iterator[tuple]:
    """(setting, make_state): a tiny run that is open, and its state at the beginning as often as it is needed."""
    from rlanything_jax.loop import State
    from rlanything_jax.setting import open_run
    from rlanything_jax.tasks import TaskPool

    with open_run(make_tiny(), lambda name, done, total: None) as (setting, state):
        beginning = jax.tree.map(np.asarray, (state.policy, state.judge))
        tasks = state.tasks.to_json()

        def make_state() -> State:
            policy, judge = jax.tree.map(jax.numpy.array, beginning)  # copies: a train step takes its state
            return State(0, policy, judge, TaskPool.from_json(tasks, fingerprint=setting.world.fingerprint))

        yield setting, make_state


@pytest.fixture(scope="session")
def start(
    compiled: dict[str, str], make_tiny: Callable[[], ConfigDict]
) -> Iterator[Callable[..., subprocess.Popen]]:
    """Starts a program of the package on the tiny config, or a script that runs it, with the given flags."""
    cache = make_tiny().pretrain.cache
    started: list[subprocess.Popen] = []

    def start(*flags: str, module: str = "train", script: str = "", **variables: str) -> subprocess.Popen:
        program = ["-c", script] if script else ["-m", f"rlanything_jax.{module}"]
        config = ["--config=tests/tiny_config.py", f"--config.pretrain.cache={cache}"]
        process = subprocess.Popen(
            [sys.executable, *program, *config, *flags],
            cwd=ROOT,
            env=os.environ | compiled | variables,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        started.append(process)
        return process

    yield start
    for process in started:
        if process.poll() is None:  # a test gave up waiting
            process.kill()
            process.communicate()


@pytest.fixture
def setting(opened: tuple):
    return opened[0]


@pytest.fixture
def state(opened: tuple):
    return opened[1]()
