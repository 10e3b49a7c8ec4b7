"""No key of a config is dead, and every config says how it is run and what comes out."""

import importlib.util
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from ml_collections import ConfigDict

from rlanything_jax import train as training
from rlanything_jax.envs.registry import world_maker
from rlanything_jax.pretrain import warm_start

ROOT = Path(__file__).resolve().parent.parent
CONFIGS = sorted(ROOT.glob("configs/*.py"))


class Reads:
    """Records which keys of a config and its sections are read."""

    def __init__(self, config: ConfigDict, monkeypatch: pytest.MonkeyPatch) -> None:
        self.keys: set[str] = set()
        self._prefix = {id(config): ""}
        self._sections = [config]  # kept, so that no id is given away
        self._pause = 0
        self._name(config, "")
        read, convert = ConfigDict.__getitem__, ConfigDict.to_dict

        def getitem(section: ConfigDict, key: str) -> Any:
            if not self._pause and id(section) in self._prefix:
                self.keys.add(self._prefix[id(section)] + key)
            return read(section, key)

        def to_dict(section: ConfigDict, *args: Any, **kwargs: Any) -> dict[str, Any]:
            """A section that becomes a dict becomes keyword arguments, which fail for what nobody takes."""
            if not self._pause and id(section) in self._prefix:
                prefix = self._prefix[id(section)]
                self.keys |= {prefix + key for key in leaves(section)}
            with self.pause():
                return convert(section, *args, **kwargs)

        monkeypatch.setattr(ConfigDict, "__getitem__", getitem)
        monkeypatch.setattr(ConfigDict, "to_dict", to_dict)

    def _name(self, section: ConfigDict, prefix: str) -> None:
        for key in section:
            if isinstance(section[key], ConfigDict):
                self._prefix[id(section[key])] = f"{prefix}{key}."
                self._sections.append(section[key])
                self._name(section[key], f"{prefix}{key}.")

    @contextmanager
    def pause(self) -> Iterator[None]:
        """What only writes the config down does not count."""
        self._pause += 1
        try:
            yield
        finally:
            self._pause -= 1


def leaves(section: ConfigDict, prefix: str = "") -> set[str]:
    found = set()
    for key, value in section._fields.items():
        if isinstance(value, ConfigDict):
            found |= leaves(value, f"{prefix}{key}.")
        else:
            found.add(prefix + key)
    return found


def unread(reads: Reads, config: ConfigDict) -> set[str]:
    return leaves(config) - reads.keys


@pytest.fixture(scope="module")
def read_by_a_run(make_tiny: Callable[[], ConfigDict], tmp_path_factory: pytest.TempPathFactory) -> Reads:
    """What is read by one iteration that starts, trains, adapts, evaluates and saves."""
    config = make_tiny()
    config.pretrain.cache = str(tmp_path_factory.mktemp("cold"))
    return read_by_one_iteration(config, tmp_path_factory)


@pytest.fixture(scope="module")
def read_by_a_chat_run(
    make_tiny_chat: Callable[[], ConfigDict], tmp_path_factory: pytest.TempPathFactory
) -> Reads:
    """The same, on a checkpoint."""
    return read_by_one_iteration(make_tiny_chat(), tmp_path_factory)


@pytest.fixture(scope="module")
def read_by_a_code_run(
    sandbox: None, make_tiny_code: Callable[[], ConfigDict], tmp_path_factory: pytest.TempPathFactory
) -> Reads:
    """The same, of programs and tests."""
    config = make_tiny_code()
    config.pretrain.cache = str(tmp_path_factory.mktemp("cold_code"))
    return read_by_one_iteration(config, tmp_path_factory)


@pytest.fixture(scope="module")
def read_by_a_code_chat_run(
    sandbox: None, make_tiny_code_chat: Callable[[], ConfigDict], tmp_path_factory: pytest.TempPathFactory
) -> Reads:
    """The same, on a checkpoint and a data set."""
    return read_by_one_iteration(make_tiny_code_chat(), tmp_path_factory)


def read_by_one_iteration(config: ConfigDict, tmp_path_factory: pytest.TempPathFactory) -> Reads:
    config.iterations = 1
    with pytest.MonkeyPatch.context() as patch:
        reads = Reads(config, patch)
        patch.setattr(warm_start, "fit", lambda params, *args, **kwargs: params)
        for module, name in ((warm_start, "_fingerprint"), (training, "claim")):
            original = getattr(module, name)

            def silent(*args: Any, original: Callable = original, **kwargs: Any) -> Any:
                with reads.pause():
                    return original(*args, **kwargs)

            patch.setattr(module, name, silent)
        training.train(config, str(tmp_path_factory.mktemp("run")))
    return reads


@pytest.mark.parametrize("path", CONFIGS, ids=lambda path: path.stem)
def test_every_key_is_read(
    request: pytest.FixtureRequest, read_config: Callable[[Path], ConfigDict], path: Path
) -> None:
    config = read_config(path)
    kind = ("_code" if config.reward == "unit_tests" else "") + ("_chat" if "checkpoint" in config else "")
    reads = request.getfixturevalue(f"read_by_a{kind}_run")
    assert {key for key in unread(reads, config) if not key.startswith("world.")} == set()


@pytest.mark.parametrize("path", CONFIGS, ids=lambda path: path.stem)
def test_every_option_of_the_world_is_one(read_config: Callable[[Path], ConfigDict], path: Path) -> None:
    """What no world takes, its constructor refuses."""
    config = read_config(path)
    options = config.world.to_dict()
    for name in ("workers", "step_timeout_s", "reset_timeout_s"):
        del options[name]
    world = world_maker(
        options.pop("name"), options | {"style": "chat" if "checkpoint" in config else "words"}
    )()
    assert world.name == config.world.name


def test_a_key_that_nobody_reads_is_noticed(read_by_a_run: Reads, tiny: ConfigDict) -> None:
    with tiny.unlocked():
        tiny.adapt.depth = 3
        tiny.model.cleverness = 2
    assert unread(read_by_a_run, tiny) >= {"adapt.depth", "model.cleverness"}


@pytest.mark.parametrize("path", CONFIGS, ids=lambda path: path.stem)
def test_the_docstring_gives_command_hardware_and_result(path: Path) -> None:
    spec = importlib.util.spec_from_file_location("config", path)
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    text = module.__doc__ or ""
    assert "launch/" in text or "python -m rlanything_jax." in text
    for word in ("Hardware:", "Wall time", "result"):
        assert word in text, f"{path}: no {word!r} in the docstring"


@pytest.mark.parametrize("path", CONFIGS, ids=lambda path: path.stem)
def test_the_names_that_tools_rely_on_are_there(
    read_config: Callable[[Path], ConfigDict], path: Path
) -> None:
    names = """seed iterations world.name world.data tasks_per_iteration rollouts_per_task votes_per_step train_policy
    train_judge adapt_tasks feedback.lam feedback.estimator adapt.low adapt.high"""
    assert set(names.split()) <= leaves(read_config(path))
