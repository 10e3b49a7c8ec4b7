"""A run on a chat checkpoint in miniature, for tests: the checkpoint is a folder with a tiny random model.

Hardware: one CPU core. Wall time: seconds, most of it compilation. Nothing is learned; the result is that it runs.
`python -m rlanything_jax.train --config=tests/tiny_chat_config.py --workdir=DIR --config.checkpoint.policy=FOLDER ...`
"""

from ml_collections import ConfigDict

from configs.alfworld_smollm2 import get_config as get_smollm2_config


def get_config() -> ConfigDict:
    config = get_smollm2_config()
    config.iterations = 2
    config.rollouts_per_task = 2
    config.world.max_steps = 2
    config.world.games = ConfigDict({"train": 4, "valid_seen": 2, "valid_unseen": 2})
    config.adapt.attempts = 2
    config.adapt.max_tokens = 8
    config.adapt.length_buckets = (1536,)
    config.eval.every = 2
    config.eval.tasks = 2
    config.sampler.max_action_tokens = 8
    config.sampler.batch_buckets = (4,)
    config.sampler.turn_buckets = (1024,)
    config.sampler.length_buckets = (2048,)
    config.trainer.tokens_per_batch = 3072
    config.trainer.length_buckets = (3072,)
    config.judge.max_tokens = 8
    config.judge.rows = 4
    config.judge.branch_buckets = (4,)
    config.judge.length_buckets = (2048,)
    return config
