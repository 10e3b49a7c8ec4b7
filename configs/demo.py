"""The closed loop on a laptop: policy, judge and tasks learn together in a generated household.

    launch/local.sh                                        this config
    launch/local.sh --config.world.data=FOLDER             the same program on the real ALFWorld games

Hardware: two CPU cores, 3 GB of memory. Wall time: some 15 minutes alone, 22 beside another run. Expected result (three
seeds): held-out success from 27-41 % to 65-70 %, some 25 rewritten tasks accepted; the table in README.md has the rest.
"""

from ml_collections import ConfigDict


def get_config() -> ConfigDict:
    config = ConfigDict()
    config.seed = 0
    config.iterations = 20
    config.tasks_per_iteration = 8
    config.rollouts_per_task = 8
    config.votes_per_step = 4
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
    config.world.name = "alfworld"
    config.world.data = ""  # folder of ALFWorld's game files; empty: generated games
    config.world.max_steps = 25
    config.world.labels = True  # ground truth of each step, to measure the judge by
    config.world.games = {"train": 256, "valid_seen": 128, "valid_unseen": 128}  # generated games
    config.world.knobs = {"receptacles": 6, "objects": 4}  # of generated games, see envs/alfworld/generate.py
    # Five of the six task types; two things to find and carry are beyond these models.
    types = ("pick_and_place_simple", "look_at_obj_in_light", "pick_clean_then_place_in_recep")
    types += ("pick_heat_then_place_in_recep", "pick_cool_then_place_in_recep")
    config.world.kinds = tuple(
        {"task_type": task_type, "hint": hint, "weight": 1 if hint else 3}
        for task_type in types
        for hint in (False, True)
    )
    config.world.seed = 0
    config.world.workers = 0  # environment processes; 0: in this process
    config.world.step_timeout_s = 10.0
    config.world.reset_timeout_s = 60.0

    config.reward = "verdicts"  # the reward model judges steps; "unit_tests": it writes tests for programs

    config.feedback = ConfigDict()
    config.feedback.outcome = "won"  # what O is: whether the task was "won", or the environment's "score"
    config.feedback.outcome_weight = 1.0
    config.feedback.source = "votes"  # what is added to the outcome; or a signal of signals.py
    config.feedback.lam = 1.0
    config.feedback.judge_signal = "outcome"  # what the judge's votes should agree with, see signals.py
    config.feedback.judge_lam = 2.0  # in the judge's own reward: a gate, see reward/step_judge.py
    config.feedback.estimator = "centred"
    config.feedback.invalid = -3.0

    config.adapt = ConfigDict()
    config.adapt.source = "critique"  # of the edits; "random": any that is valid, in no direction
    config.adapt.low = 0.2
    config.adapt.high = 0.8
    config.adapt.max_pending = 2  # proposals an iteration, each costs rollouts_per_task episodes to verify
    config.adapt.attempts = 4  # samples of the rewriter until one is valid
    config.adapt.original_share = 0.75
    config.adapt.temperature = 1.0
    config.adapt.max_tokens = 24
    config.adapt.length_buckets = (160, 512, 1024)

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
    config.pretrain.noise = 0.15  # share of the actions in the demonstrations that are random
    config.pretrain.read_weight = 0.3  # of what is read, relative to what is written
    config.pretrain.learning_rate = 0.02  # of Muon
    config.pretrain.policy_steps = 1000
    config.pretrain.policy_tokens = 1152  # of one batch
    config.pretrain.policy_length = 384
    config.pretrain.judge_episodes = 320
    config.pretrain.judge_steps = 400
    config.pretrain.judge_tokens = 1536
    config.pretrain.judge_length = 768
    config.pretrain.judge_noise = 0.05  # share of the verdicts that are flipped
    config.pretrain.rewriter_steps = 135
    config.pretrain.rewriter_tokens = 1152
    config.pretrain.rewriter_length = 256

    config.eval = ConfigDict()
    config.eval.every = 8  # iterations; also before the first and after the last
    config.eval.tasks = 128  # of valid_seen, and half as many of valid_unseen
    config.eval.judged = 0  # tasks of valid_seen on which the reward model is measured too

    config.sampler = ConfigDict()
    config.sampler.temperature = 1.5  # hot: the policy explores, and is measured, at what it is trained at
    config.sampler.top_k = 0  # tokens to choose from; 0 for all
    config.sampler.top_p = 1.0  # mass of the likeliest tokens to choose from
    config.sampler.stop = ()  # strings that end a response
    config.sampler.max_action_tokens = 8
    config.sampler.batch_buckets = (16, 80)
    config.sampler.turn_buckets = (48, 128, 256)
    config.sampler.length_buckets = (256, 768, 1408, 2816)
    config.sampler.groups = 1  # of episodes in flight; 2 where environments are slow
    config.sampler.cache_mb = 0.0  # of all groups; 0 for what the largest buckets take

    config.trainer = ConfigDict()
    config.trainer.tokens_per_batch = 2816
    config.trainer.max_logprob_gap = 1e-3  # between sampler and trainer, a mean; more stops the run
    config.trainer.length_buckets = (1408, 3072)

    config.policy = ConfigDict()
    config.policy.learning_rate = 3e-4
    config.policy.warmup = 0  # updates
    config.policy.final_share = 0.4  # of the learning rate, at the last update
    config.policy.moments = "float32"
    config.policy.master_weights = False
    config.policy.weight_decay = 0.0
    config.policy.max_grad_norm = 1.0
    config.policy.gain_rate = 30.0  # of the norms' gains, relative to the learning rate
    config.policy.updates = 2
    config.policy.temperature = 1.5
    config.policy.eps_low = 0.2
    config.policy.eps_high = 0.28
    config.policy.kl = 0.0
    config.policy.correction_cap = 2.0
    config.policy.aggregation = "sequence"
    config.policy.task_filter = (0.0, 1.0)

    config.judge = ConfigDict()
    config.judge.learning_rate = 3e-5
    config.judge.warmup = 0
    config.judge.final_share = 0.1
    config.judge.moments = "float32"
    config.judge.master_weights = False
    config.judge.weight_decay = 0.0
    config.judge.max_grad_norm = 1.0
    config.judge.gain_rate = 1.0  # of the norms' gains, relative to the learning rate
    config.judge.updates = 1
    config.judge.temperature = 0.7
    config.judge.eps_low = 0.2
    config.judge.eps_high = 0.28
    config.judge.kl = 0.0
    config.judge.correction_cap = 2.0
    config.judge.aggregation = "sequence"
    config.judge.task_filter = (0.2, 0.8)
    config.judge.trajectories = 24  # trained on in an iteration
    config.judge.max_tokens = 10
    config.judge.rows = 16
    config.judge.early = False  # vote while other episodes play: pays where environments are slow
    config.judge.branch_buckets = (48, 100)
    config.judge.length_buckets = (256, 448, 768, 1408, 2816)
    return config
