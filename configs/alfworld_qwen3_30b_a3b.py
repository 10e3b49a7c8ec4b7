"""The household experiment with a mixture of experts as policy: Qwen3-30B-A3B on a slice of 64 TPU v5p chips, 14B as judge.

    launch/tpu_pod.sh --name=moe --type=v5p-128 --zone=ZONE --bucket=BUCKET -- --config=configs/alfworld_qwen3_30b_a3b.py \
        --config.world.data=GAMES --config.checkpoint.policy=FOLDER --config.checkpoint.judge=FOLDER \
        --config.checkpoint.rewriter=FOLDER

Hardware: v5p-128 by the cloud's name, which counts two cores a chip.
Wall time: not measured; README.md says what the compiler predicts.
Expected result: not known; the paper's policy is Qwen2.5-7B.
"""

from ml_collections import ConfigDict

from configs.alfworld_qwen2_5_7b_v5p import get_config as dense


def get_config() -> ConfigDict:
    config = dense()
    config.checkpoint.policy = "qwen3-30b-a3b"
    return config
