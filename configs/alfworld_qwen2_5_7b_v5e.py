"""The household experiment with a context of 16 k on a slice of 256 TPU v5e chips: Qwen2.5-7B as policy, 14B as judge.

    launch/tpu_pod.sh --name=qwen --type=v5litepod-256 --zone=ZONE --bucket=BUCKET -- \
        --config=configs/alfworld_qwen2_5_7b_v5e.py --config.world.data=GAMES \
        --config.checkpoint.policy=FOLDER --config.checkpoint.judge=FOLDER --config.checkpoint.rewriter=FOLDER

Hardware: v5litepod-256; a host has 4 chips of 16 GB, and two tasks at most, so that it holds what it samples with.
Wall time: not measured; README.md says what the compiler predicts.
Expected result: that of alfworld_qwen2_5_7b.py.
"""

from ml_collections import ConfigDict

from configs.alfworld_qwen2_5_7b_v5p import get_config as on_v5p


def get_config() -> ConfigDict:
    config = on_v5p()
    config.checkpoint.rewriter = "qwen3-1.7b"  # paper: 4B; it lies beside the judge
    config.mesh = ConfigDict({"data": 1, "fsdp": -1, "tensor": 4, "sequence": 2, "expert": 1})
    config.sampler.batch_buckets = (8, 16)
    config.sampler.turn_buckets = (256, 1024)
    config.trainer.length_buckets = (4096, 8192, 17408)  # an episode, the question and one vote
    config.judge.max_tokens = 500  # paper: 4000; 120 votes on one episode are all that a host holds
    config.judge.rows = 1
    config.adapt.max_pending = 8
    config.adapt.max_tokens = 1024
    return config
