"""RLAnything's coding experiment at its full size: Qwen2.5-7B-Instruct as policy, 14B as writer of tests, Qwen3-4B as rewriter.

    python -m rlanything_jax.data prepare --raw=RAW --out=DATA      CodeContests and LiveCodeBench, see README
    python -m rlanything_jax.train --config=configs/code_qwen2_5_7b.py --workdir=DIR --config.world.data=DATA \
        --config.checkpoint.policy=FOLDER --config.checkpoint.judge=FOLDER --config.checkpoint.rewriter=FOLDER

Values are those of the paper's appendix and of the configs it was run with; a line that deviates says so.

Hardware: accelerators that hold both models with their optimizers: 22 billion trained parameters, 310 GB of state.
Wall time: not measured. Expected result, the paper's (Table 1): LiveCodeBench 27 -> 34 %,
accuracy of the tests 36 -> 82 %, detect rate 28 -> 55 %; CodeContests 21 -> 27, 44 -> 87, 36 -> 56 %.
"""

from ml_collections import ConfigDict


def get_config() -> ConfigDict:
    config = ConfigDict()
    config.seed = 10086
    config.iterations = 300
    config.tasks_per_iteration = 64
    config.rollouts_per_task = 32
    config.votes_per_step = 16  # tests written for a task
    config.train_policy = True
    config.train_judge = True
    config.adapt_tasks = True
    config.curriculum = "uniform"  # which tasks are drawn; "filtered", "progress": see tasks/curriculum.py
    config.checkpoint_every = 10  # paper: 30; a preempted slice loses less
    config.record_rollouts = 1
    config.tensorboard = True

    # Devices along each axis of the mesh; -1 is what the others leave. `tensor` times `expert` must fit one host.
    config.mesh = ConfigDict({"data": 1, "fsdp": -1, "tensor": 4, "sequence": 1, "expert": 1})
    # Of each host's devices, how many sample and do not train (0: all, in turns), and how they split a model (0: as `mesh` does).
    config.rollout_mesh = ConfigDict({"devices": 0, "tensor": 0, "expert": 0})

    config.checkpoint = ConfigDict({"policy": "", "judge": "", "rewriter": ""})

    config.model = ConfigDict()
    config.model.dtype = "bfloat16"
    config.model.remat = "full"  # paper: of the judge only; on a TPU memory is dearer than recomputation
    config.model.scan_unroll = 1

    config.world = ConfigDict()
    config.world.name = "code"
    config.world.data = ""  # of `python -m rlanything_jax.data prepare`
    config.world.sources = ConfigDict(  # paper: CodeContests up to difficulty 2, some 4,500 problems
        {
            "train": "code_contests:train",
            "valid_seen": "code_contests:test",
            "valid_unseen": "live_code_bench:test",
        }
    )
    config.world.max_steps = 1  # 2 or more: the policy sees which examples failed and tries again
    config.world.workers = 16
    config.world.step_timeout_s = 120.0
    config.world.reset_timeout_s = 60.0

    config.reward = "unit_tests"  # the reward model writes tests for programs; "verdicts": it judges steps

    config.feedback = ConfigDict()
    config.feedback.outcome = (
        "score"  # what O is: the share of the tests that is passed; "won": whether all are
    )
    config.feedback.outcome_weight = 1.0
    config.feedback.source = "votes"  # what is added to the outcome; or a signal of signals.py
    config.feedback.lam = (
        0.0  # generated tests stay out of the reward of the policy, as in the paper; 1.0 takes them in
    )
    config.feedback.estimator = "published"  # standardised over the tests of a task; "centred": only centred

    config.adapt = ConfigDict()
    config.adapt.source = "critique"  # of the edits; "random": any that is valid, in no direction
    config.adapt.low = 0.2
    config.adapt.high = 0.8
    config.adapt.max_pending = 32  # paper: no limit; each costs rollouts_per_task episodes
    config.adapt.attempts = 3
    config.adapt.original_share = 0.5  # paper: slots are drawn alike, whatever they hold
    config.adapt.temperature = 0.8
    config.adapt.max_tokens = 8096
    config.adapt.length_buckets = (4096, 12288)

    config.eval = ConfigDict()
    config.eval.every = 10
    config.eval.tasks = 160
    config.eval.judged = 64  # tasks of valid_seen on which the written tests are measured

    config.sampler = ConfigDict()
    config.sampler.temperature = 1.0  # with top-p 0.95 in the published code; here all of the distribution
    config.sampler.top_k = 0  # tokens to choose from; 0 for all
    config.sampler.top_p = 1.0  # mass of the likeliest tokens to choose from
    config.sampler.stop = ()  # strings that end a response
    config.sampler.max_action_tokens = 2048
    config.sampler.batch_buckets = (128, 512)
    config.sampler.turn_buckets = (1024, 4096)
    config.sampler.length_buckets = (4096, 8192, 10240)
    config.sampler.groups = 1  # of episodes in flight; 2 where environments are slow
    config.sampler.cache_mb = 0.0  # of all groups; 0 for what the largest buckets take

    config.trainer = ConfigDict()
    config.trainer.tokens_per_batch = 65536
    config.trainer.max_logprob_gap = 0.3  # a mean; bfloat16 rounds by a percent or so
    config.trainer.length_buckets = (4096, 8192, 16384, 49152)

    config.policy = ConfigDict()
    config.policy.lora = ConfigDict({"rank": 0, "alpha": 16.0, "targets": ("wq", "wv"), "int8_base": False})
    config.policy.learning_rate = 1e-6
    config.policy.warmup = 0
    config.policy.final_share = 1.0
    config.policy.moments = "float32"
    config.policy.master_weights = True
    config.policy.weight_decay = 0.0
    config.policy.max_grad_norm = 1.0
    config.policy.gain_rate = 1.0  # of the norms' gains, relative to the learning rate
    config.policy.updates = 2
    config.policy.temperature = 1.0
    config.policy.eps_low = 0.2
    config.policy.eps_high = 0.2
    config.policy.kl = 0.01
    config.policy.correction_cap = 2.0
    config.policy.aggregation = "sequence"
    config.policy.task_filter = (0.0, 1.0)

    config.judge = ConfigDict()
    config.judge.lora = ConfigDict({"rank": 0, "alpha": 16.0, "targets": ("wq", "wv"), "int8_base": False})
    config.judge.learning_rate = 1e-6
    config.judge.warmup = 0
    config.judge.final_share = 1.0
    config.judge.moments = "float32"
    config.judge.master_weights = True
    config.judge.weight_decay = 0.0
    config.judge.max_grad_norm = 1.0
    config.judge.gain_rate = 1.0  # of the norms' gains, relative to the learning rate
    config.judge.updates = 2
    config.judge.temperature = 0.8
    config.judge.eps_low = 0.2
    config.judge.eps_high = 0.2
    config.judge.kl = 0.01
    config.judge.correction_cap = 2.0
    config.judge.aggregation = "sequence"
    config.judge.task_filter = (0.0, 1.0)
    config.judge.max_tokens = 2048
    config.judge.rows = 32
    config.judge.length_buckets = (1024, 4096, 10240)
    return config
