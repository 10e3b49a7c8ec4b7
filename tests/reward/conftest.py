"""A tiny random model."""

import jax
import numpy as np
import pytest

from rlanything_jax.models import ModelConfig, Params, init, unstack

CONFIG = ModelConfig(
    vocab_size=280, embed_dim=16, layers=2, heads=4, kv_heads=2, head_dim=8, ff_dim=24, qkv_bias=True
)


@pytest.fixture(scope="session")
def model() -> ModelConfig:
    return CONFIG


@pytest.fixture(scope="session")
def stacked() -> Params:
    """Random norms and biases too, which are ones and zeros at first; large enough to tell texts apart."""
    rng = np.random.default_rng(0)

    def draw(path: tuple, x: jax.ShapeDtypeStruct) -> np.ndarray:
        mean = 1.0 if "norm" in jax.tree_util.keystr(path) else 0.0
        return rng.normal(mean, 0.4, x.shape).astype(np.float32)

    return jax.tree_util.tree_map_with_path(
        draw, jax.eval_shape(lambda k: init(CONFIG, k), jax.random.key(0))
    )


@pytest.fixture(scope="session")
def params(stacked: Params) -> Params:
    return unstack(stacked, CONFIG)
