"""The coding domain on a laptop: a policy that writes programs and a reward model that writes unit tests learn together.

    launch/local.sh --config=configs/code_tiny.py --workdir=runs/code

Problems are generated functions of an integer; strings and lists are there too, see envs/code/functions/. Programs and tests run
in the sandbox. Hardware: one or two CPU cores, 2 GB of memory. Wall time: 4 to 7 minutes. Expected result on held-out problems,
means of three seeds: 43 -> 84 % solved, 41 -> 61 % of the tests true, 9 -> 22 % detect every wrong program.
"""

from ml_collections import ConfigDict


def get_config() -> ConfigDict:
    config = ConfigDict()
    config.seed = 0
    config.iterations = 40
    config.tasks_per_iteration = 16
    config.rollouts_per_task = 8
    config.votes_per_step = 8  # tests written for a task
    config.train_policy = True
    config.train_judge = True
    config.adapt_tasks = True
    config.curriculum = "uniform"  # which tasks are drawn; "filtered", "progress": see tasks/curriculum.py
    config.checkpoint_every = 5
    config.record_rollouts = 2  # trajectories of each task that are written to trajectories/, 0 for none
    config.tensorboard = False

    # Devices along each axis of the mesh; -1 is what the others leave. `tensor` times `expert` must fit one host.
    config.mesh = ConfigDict({"data": -1, "fsdp": 1, "tensor": 1, "sequence": 1, "expert": 1})
    # Of each host's devices, how many sample and do not train (0: all, in turns), and how they split a model (0: as `mesh` does).
    config.rollout_mesh = ConfigDict({"devices": 0, "tensor": 0, "expert": 0})

    config.world = ConfigDict()
    config.world.name = "code"
    config.world.data = ""  # generated functions; data sets need chat models, see configs/code_smollm2.py
    config.world.max_steps = (
        1  # programs an episode; 2 or more: the policy sees which examples failed and tries again
    )
    config.world.problems = {"train": 512, "valid_seen": 192, "valid_unseen": 96}  # generated functions
    config.world.knobs = {"steps": (2, 4), "types": ("int",)}  # see envs/code/functions/generate.py
    config.world.kinds = ({"weight": 3}, {"example": True})
    config.world.seed = 0
    config.world.workers = 0  # environment processes; 0: in this process
    config.world.step_timeout_s = 30.0
    config.world.reset_timeout_s = 60.0

    config.reward = "unit_tests"  # the reward model writes tests for programs; "verdicts": it judges steps

    config.feedback = ConfigDict()
    config.feedback.outcome = (
        "score"  # what O is: the share of the tests that is passed; "won": whether all are
    )
    config.feedback.outcome_weight = 1.0
    config.feedback.source = "votes"  # what is added to the outcome; or a signal of signals.py
    config.feedback.lam = (
        0.0  # weight of the written tests in the policy's reward; the paper uses none in this domain
    )
    config.feedback.estimator = "published"  # standardised over the tests of a task; "centred": only centred

    config.adapt = ConfigDict()
    config.adapt.source = "critique"  # of the edits; "random": any that is valid, in no direction
    config.adapt.low = 0.2
    config.adapt.high = 0.8
    config.adapt.max_pending = 2  # proposals an iteration, each costs rollouts_per_task episodes to verify
    config.adapt.attempts = 4  # samples of the rewriter until one is valid
    config.adapt.original_share = 0.75
    config.adapt.temperature = 1.0
    config.adapt.max_tokens = 24
    config.adapt.length_buckets = (96,)

    config.model = ConfigDict()  # of policy, judge and rewriter
    config.model.embed_dim = 128
    config.model.layers = 3
    config.model.heads = 4
    config.model.kv_heads = 4
    config.model.head_dim = 32
    config.model.ff_dim = 384
    config.model.scan_unroll = 3
    config.model.scale_embeddings = True

    config.pretrain = ConfigDict()  # the warm start that stands for pretrained checkpoints
    config.pretrain.cache = "~/.cache/rlanything_jax/warm_start"
    config.pretrain.world = ConfigDict()  # options of `world` that the warm start has otherwise
    config.pretrain.noise = 0.25  # share of the lines and of the reasoning steps that are wrong
    config.pretrain.read_weight = 0.1  # of what is read, relative to what is written
    config.pretrain.learning_rate = 0.02  # of Muon
    config.pretrain.policy_steps = 300
    config.pretrain.policy_tokens = 1536  # of one batch
    config.pretrain.policy_length = 128
    config.pretrain.judge_steps = 700
    config.pretrain.judge_tokens = 1536
    config.pretrain.judge_length = 128
    config.pretrain.rewriter_steps = 120
    config.pretrain.rewriter_tokens = 1536
    config.pretrain.rewriter_length = 128

    config.eval = ConfigDict()
    config.eval.every = 10  # iterations; also before the first and after the last
    config.eval.tasks = 192  # of valid_seen, and half as many of valid_unseen
    config.eval.judged = 64  # tasks of valid_seen on which the written tests are measured

    config.sampler = ConfigDict()
    config.sampler.temperature = 1.0
    config.sampler.top_k = 0  # tokens to choose from; 0 for all
    config.sampler.top_p = 1.0  # mass of the likeliest tokens to choose from
    config.sampler.stop = ()  # strings that end a response
    config.sampler.max_action_tokens = 24
    config.sampler.batch_buckets = (144,)
    config.sampler.turn_buckets = (48,)
    config.sampler.length_buckets = (80,)
    config.sampler.groups = 1  # of episodes in flight; 2 where environments are slow
    config.sampler.cache_mb = 0.0  # of all groups; 0 for what the largest buckets take

    config.trainer = ConfigDict()
    config.trainer.tokens_per_batch = 3072
    config.trainer.max_logprob_gap = 1e-3  # between sampler and trainer, a mean; more stops the run
    config.trainer.length_buckets = (128, 384)

    config.policy = ConfigDict()
    config.policy.learning_rate = 3e-4
    config.policy.warmup = 0  # updates
    config.policy.final_share = 0.3  # of the learning rate, at the last update
    config.policy.moments = "float32"
    config.policy.master_weights = False
    config.policy.weight_decay = 0.0
    config.policy.max_grad_norm = 1.0
    config.policy.gain_rate = 1.0  # of the norms' gains, relative to the learning rate
    config.policy.updates = 1
    config.policy.temperature = 1.0
    config.policy.eps_low = 0.2
    config.policy.eps_high = 0.28
    config.policy.kl = 0.0
    config.policy.correction_cap = 2.0
    config.policy.aggregation = "sequence"
    config.policy.task_filter = (0.0, 1.0)

    config.judge = ConfigDict()
    config.judge.learning_rate = 3e-4
    config.judge.warmup = 0
    config.judge.final_share = 0.3
    config.judge.moments = "float32"
    config.judge.master_weights = False
    config.judge.weight_decay = 0.0
    config.judge.max_grad_norm = 1.0
    config.judge.gain_rate = 1.0  # of the norms' gains, relative to the learning rate
    config.judge.updates = 1
    config.judge.temperature = 1.0
    config.judge.eps_low = 0.2
    config.judge.eps_high = 0.28
    config.judge.kl = 0.0
    config.judge.correction_cap = 2.0
    config.judge.aggregation = "sequence"
    config.judge.task_filter = (0.0, 1.0)
    config.judge.max_tokens = 40
    config.judge.rows = 18
    config.judge.length_buckets = (80,)
    return config
