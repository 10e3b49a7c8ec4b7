"""The decoder against a forward pass written here in plain numpy, for every option of the config."""

import dataclasses

import jax
import numpy as np
import pytest

from rlanything_jax.models import ModelConfig, Params, init, logits, unstack
from rlanything_jax.models.config import REMAT
from rlanything_jax.models.decoder import hidden, unembed
from rlanything_jax.sampler import Sampling, decode_branches, extend, new_sessions
from rlanything_jax.trainer.batches import Piece, TrainSequence, attention_mask, pack

TINY = ModelConfig(vocab_size=40, embed_dim=16, layers=2, heads=4, kv_heads=4, head_dim=8, ff_dim=24)
VARIANTS = {
    "llama, tied": {"scale_embeddings": True, "rope_theta": 500.0},
    "qwen2, grouped heads and biases": {"kv_heads": 2, "qkv_bias": True},
    "qwen3, one kv head, normed and untied": {"kv_heads": 1, "qk_norm": True, "tie_embeddings": False},
    "a window in the second layer": {"sliding_window": 3, "sliding_layers": (1,)},
}


def random_params(config: ModelConfig) -> Params:
    """Random norms and biases too: at initialisation those are ones and zeros, which hide mistakes."""
    rng = np.random.default_rng(0)
    shapes = jax.eval_shape(lambda key: init(config, key), jax.random.key(0))
    return jax.tree.map(lambda x: rng.normal(0.3, 0.4, x.shape).astype(np.float32), shapes)


def rms(x: np.ndarray, scale: np.ndarray, eps: float) -> np.ndarray:
    return x / np.sqrt(np.mean(x**2, -1, keepdims=True) + eps) * scale


def rotate(x: np.ndarray, theta: float) -> np.ndarray:
    """x [S,heads,H]: pair (i, i + H/2) turned by position * theta^(-2i/H), as complex numbers."""
    half = x.shape[-1] // 2
    angle = np.arange(len(x))[:, None] * theta ** (-2 * np.arange(half) / x.shape[-1])
    turned = (x[..., :half] + 1j * x[..., half:]) * np.exp(1j * angle)[:, None]
    return np.concatenate([turned.real, turned.imag], -1)


def reference(params: Params, c: ModelConfig, tokens: np.ndarray) -> np.ndarray:
    """Logits [S,V] of one sequence [S] in float64."""
    params = jax.tree.map(lambda p: np.asarray(p, np.float64), params)
    s = len(tokens)
    x = params["embed"][tokens] * (np.sqrt(c.embed_dim) if c.scale_embeddings else 1)
    for i in range(c.layers):
        w = jax.tree.map(lambda p, i=i: p[i], params["layers"])

        def project(name: str, y: np.ndarray, w: Params = w) -> np.ndarray:
            return (y @ w[name]["kernel"] + w[name].get("bias", 0)).reshape(s, -1, c.head_dim)

        y = rms(x, w["attn_norm"]["scale"], c.norm_eps)
        q, k, v = project("wq", y), project("wk", y), project("wv", y)
        if c.qk_norm:
            q, k = rms(q, w["q_norm"]["scale"], c.norm_eps), rms(k, w["k_norm"]["scale"], c.norm_eps)
        q, k = rotate(q, c.rope_theta), rotate(k, c.rope_theta)
        attended = np.zeros_like(q)
        for t in range(s):
            seen = slice(max(0, t + 1 - c.sliding_window) if i in c.sliding_layers else 0, t + 1)
            for n in range(c.heads):
                group = n * c.kv_heads // c.heads
                scores = k[seen, group] @ q[t, n] / np.sqrt(c.head_dim)
                weights = np.exp(scores - scores.max())
                attended[t, n] = weights @ v[seen, group] / weights.sum()
        x = x + attended.reshape(s, -1) @ w["wo"]["kernel"]
        y = rms(x, w["ff_norm"]["scale"], c.norm_eps)
        gate = y @ w["w_gate"]["kernel"]
        x = x + (gate / (1 + np.exp(-gate)) * (y @ w["w_up"]["kernel"])) @ w["w_down"]["kernel"]
    table = params["embed"] if c.tie_embeddings else params["head"]
    return rms(x, params["norm"], c.norm_eps) @ table.T


@pytest.fixture(scope="module")
def tokens() -> np.ndarray:
    return np.random.default_rng(1).integers(0, TINY.vocab_size, (2, 7))


@pytest.mark.parametrize("variant", VARIANTS)
def test_logits_equal_an_independent_forward_pass(variant: str, tokens: np.ndarray) -> None:
    config = dataclasses.replace(TINY, **VARIANTS[variant])
    params = random_params(config)
    got = logits(params, config, tokens, np.ones(tokens.shape, bool))
    for row, sequence in zip(got, tokens, strict=True):
        np.testing.assert_allclose(row, reference(params, config, sequence), rtol=2e-4, atol=2e-4)


def test_padding_side_wrong_for_prompts(tokens: np.ndarray) -> None:
    """Case 10: padding on the left or the right, whatever ids it holds, changes no logits of the text."""
    params = random_params(TINY)
    text = tokens[0, :4]
    padded = np.array([[*text, 9, 9, 9], [7, 7, 7, *text]])
    mask = np.array([[True] * 4 + [False] * 3, [False] * 3 + [True] * 4])
    got = np.asarray(logits(params, TINY, padded, mask))
    assert np.isfinite(got).all()
    expected = reference(params, TINY, text)
    np.testing.assert_allclose(got[0, :4], expected, rtol=2e-4, atol=2e-4)
    np.testing.assert_allclose(got[1, 3:], expected, rtol=2e-4, atol=2e-4)


def test_a_token_changes_nothing_before_it(tokens: np.ndarray) -> None:
    params, mask = random_params(TINY), np.ones(tokens.shape, bool)
    changed = tokens.copy()
    changed[:, 4] = (changed[:, 4] + 1) % TINY.vocab_size
    before, after = (np.asarray(logits(params, TINY, t, mask)) for t in (tokens, changed))
    np.testing.assert_array_equal(before[:, :4], after[:, :4])
    assert np.abs(before[:, 4:] - after[:, 4:]).max(axis=-1).min() > 1e-3


WINDOWED = dataclasses.replace(TINY, sliding_window=3, sliding_layers=(1,))


def test_a_packed_tree_under_a_window_gives_the_logits_of_each_branch_alone() -> None:
    params = random_params(WINDOWED)
    rng = np.random.default_rng(2)
    trunk, branch = (rng.integers(0, 40, n).tolist() for n in (8, 4))
    point = 5

    def piece(tokens: list[int], point: int = 0) -> Piece:
        return Piece(tokens, [1.0] * len(tokens), [0.0] * len(tokens), [0.0] * len(tokens), point)

    tree = TrainSequence(piece(trunk), [piece(branch, point)])
    (batch,) = pack([TrainSequence(piece(trunk[:3])), tree], tokens=16, lengths=(16,))
    x = hidden(params, WINDOWED, batch.tokens, batch.position, attention_mask(batch))
    got = np.asarray(unembed(params, WINDOWED, x))[0]
    np.testing.assert_allclose(got[:8], reference(params, WINDOWED, np.array(trunk)), rtol=2e-4, atol=2e-4)
    alone = reference(params, WINDOWED, np.array(trunk[:point] + branch))
    np.testing.assert_allclose(got[8:12], alone[point:], rtol=2e-4, atol=2e-4)


def test_sampled_branches_under_a_window_follow_the_full_forward_pass() -> None:
    """The window reaches into the trunk for the first tokens of a branch, and ends within the branch for the last."""
    params = random_params(WINDOWED)
    layers, trunk = unstack(params, WINDOWED), np.arange(9)[None] % 40
    question, points, chunk = np.array([3, 11], np.int32), np.array([[4, 9]], np.int32), 4
    sessions = extend(layers, WINDOWED, new_sessions(WINDOWED, 1, 12), trunk, np.array([9]))
    how = Sampling(
        np.ones(2, np.float32),
        np.full(2, chunk),
        np.full((2, 1), -1),
        np.arange(2, dtype=np.uint32),
        np.uint32(0),
    )
    sampled = decode_branches(layers, WINDOWED, sessions, points, question, how, chunk)
    for row, point in enumerate(points[0]):
        text = np.concatenate([trunk[0, :point], question, sampled.tokens[row]])
        scores = reference(params, WINDOWED, text)[point + 1 : -1]
        logp = scores - np.log(np.exp(scores).sum(-1, keepdims=True))
        expected = np.take_along_axis(logp, text[point + 2 :, None], -1)[:, 0]
        np.testing.assert_allclose(sampled.logprobs[row], expected, rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("remat", [name for name in REMAT if name != "none"])
def test_options_of_speed_and_memory_change_neither_logits_nor_gradients(remat: str) -> None:
    params = random_params(TINY)
    tokens = np.arange(6)[None]
    position, mask = tokens, np.tril(np.ones((1, 6, 6), bool))

    def loss(params: Params, config: ModelConfig) -> jax.Array:
        return (unembed(params, config, hidden(params, config, tokens, position, mask)) ** 2).mean()

    compute = jax.jit(jax.value_and_grad(loss), static_argnums=1)
    plain = compute(params, TINY)
    other = compute(params, dataclasses.replace(TINY, scan_unroll=2, remat=remat))
    for a, b in zip(jax.tree.leaves(plain), jax.tree.leaves(other), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5 * float(np.abs(a).max()))


def test_initial_parameters_follow_the_key_and_differ_between_layers() -> None:
    make = jax.jit(init, static_argnums=0)
    a, b, c = make(TINY, jax.random.key(0)), make(TINY, jax.random.key(0)), make(TINY, jax.random.key(1))
    for x, y in zip(jax.tree.leaves(a), jax.tree.leaves(b), strict=True):
        np.testing.assert_array_equal(x, y)
    kernel = a["layers"]["wq"]["kernel"]
    assert np.abs(kernel - c["layers"]["wq"]["kernel"]).max() > 0.01
    assert np.abs(kernel[0] - kernel[1]).max() > 0.01
    # Fan-in initialisation keeps the variance; D = 16 gives a deviation of 1/4.
    assert float(kernel.std()) == pytest.approx(0.25, rel=0.1)


def test_unstacked_layers_are_the_stacked_ones() -> None:
    params = random_params(TINY)
    layers = unstack(params, TINY)["layers"]
    assert len(layers) == TINY.layers
    for i, layer in enumerate(layers):
        np.testing.assert_array_equal(layer["w_up"]["kernel"], params["layers"]["w_up"]["kernel"][i])


def test_bfloat16_activations_over_float32_parameters_give_nearly_the_same_logits(tokens: np.ndarray) -> None:
    params, mask = random_params(TINY), np.ones(tokens.shape, bool)
    params = jax.tree.map(lambda x: x * 0.3 if x.ndim > 2 else x, params)
    mixed = dataclasses.replace(TINY, dtype="bfloat16", param_dtype="float32")
    got, expected = logits(params, mixed, tokens, mask), logits(params, TINY, tokens, mask)
    assert got.dtype == np.float32
    difference = np.abs(np.asarray(got) - expected).max()
    assert 0 < difference < 0.05 * np.abs(expected).max()
