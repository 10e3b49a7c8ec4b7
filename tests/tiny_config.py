"""The demo in miniature, for tests: seconds instead of minutes, and nothing is learned.

Hardware: one CPU core. `python -m rlanything_jax.train --config=tests/tiny_config.py --workdir=DIR` takes about ten seconds.
"""

from ml_collections import ConfigDict

from configs.demo import get_config as get_demo_config


def get_config() -> ConfigDict:
    config = get_demo_config()
    config.iterations = 4
    config.tasks_per_iteration = 2
    config.rollouts_per_task = 2
    config.votes_per_step = 2
    config.checkpoint_every = 1

    config.world.max_steps = 4
    config.world.games = ConfigDict({"train": 16, "valid_seen": 4, "valid_unseen": 4})
    config.world.knobs = ConfigDict({"receptacles": 5, "objects": 4, "room": "kitchen"})
    config.world.kinds = ({},)

    config.adapt.max_pending = 1
    config.adapt.original_share = 0.5
    config.adapt.attempts = 2
    config.adapt.max_tokens = 8
    config.adapt.length_buckets = (256,)

    config.model.embed_dim = 32
    config.model.layers = 1
    config.model.heads = 2
    config.model.kv_heads = 1
    config.model.head_dim = 16
    config.model.ff_dim = 32
    config.model.scan_unroll = 1

    config.pretrain.policy_steps = 60
    config.pretrain.policy_tokens = 1024
    config.pretrain.policy_length = 512
    config.pretrain.judge_episodes = 8
    config.pretrain.judge_steps = 60
    config.pretrain.judge_tokens = 1024
    config.pretrain.judge_length = 512
    config.pretrain.rewriter_steps = 30
    config.pretrain.rewriter_tokens = 1024
    config.pretrain.rewriter_length = 512

    config.eval.every = 2
    config.eval.tasks = 2

    config.sampler.batch_buckets = (8,)
    config.sampler.turn_buckets = (80,)
    config.sampler.length_buckets = (384,)

    config.trainer.tokens_per_batch = 1024
    config.trainer.length_buckets = (512,)

    config.policy.warmup = 0
    config.policy.updates = 1
    config.policy.temperature = config.sampler.temperature = 1.0

    config.judge.task_filter = (0.0, 1.0)
    config.judge.trajectories = 4
    config.judge.rows = 4
    config.judge.branch_buckets = (8,)
    config.judge.length_buckets = (384,)
    config.judge.temperature = 1.0
    return config
