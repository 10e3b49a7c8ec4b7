"""configs/code_tiny.py in miniature, for tests: nothing is learned.

Hardware: one CPU core. `python -m rlanything_jax.train --config=tests/tiny_code_config.py --workdir=DIR` takes about ten seconds.
"""

from ml_collections import ConfigDict

from configs.code_tiny import get_config as get_code_config


def get_config() -> ConfigDict:
    config = get_code_config()
    config.iterations = 2
    config.tasks_per_iteration = 2
    config.rollouts_per_task = 2
    config.votes_per_step = 2
    config.checkpoint_every = 1

    config.world.problems = ConfigDict({"train": 16, "valid_seen": 4, "valid_unseen": 4})
    config.world.knobs = ConfigDict({"steps": (1, 2), "types": ("int",)})

    config.adapt.max_pending = 1
    config.adapt.attempts = 2
    config.adapt.max_tokens = 8

    config.model.embed_dim = 32
    config.model.layers = 1
    config.model.heads = 2
    config.model.kv_heads = 1
    config.model.head_dim = 16
    config.model.ff_dim = 32
    config.model.scan_unroll = 1

    config.pretrain.policy_steps = 40
    config.pretrain.judge_steps = 40
    config.pretrain.rewriter_steps = 4

    config.eval.every = 2
    config.eval.tasks = 2
    config.eval.judged = 2

    config.sampler.batch_buckets = (8,)
    config.trainer.tokens_per_batch = 1024
    config.judge.rows = 2
    return config
