"""The household experiment with a context of 16 k on a slice of 32 TPU v5p chips: Qwen2.5-7B as policy, 14B as judge.

    launch/tpu_pod.sh --name=qwen --type=v5p-64 --zone=ZONE --bucket=BUCKET -- --config=configs/alfworld_qwen2_5_7b_v5p.py \
        --config.world.data=GAMES --config.checkpoint.policy=FOLDER --config.checkpoint.judge=FOLDER \
        --config.checkpoint.rewriter=FOLDER

Hardware: v5p-64 by the cloud's name, which counts two cores a chip.
Wall time: not measured; README.md says what the compiler predicts.
Expected result: that of alfworld_qwen2_5_7b.py.
"""

from ml_collections import ConfigDict

from configs.alfworld_qwen2_5_7b import get_config as paper


def get_config() -> ConfigDict:
    config = paper()
    config.checkpoint = ConfigDict({"policy": "qwen2.5-7b", "judge": "qwen2.5-14b", "rewriter": "qwen3-4b"})
    # Whole layers are gathered as they come; with `tensor` every layer's activations would be exchanged too.
    config.mesh = ConfigDict({"data": 1, "fsdp": -1, "tensor": 1, "sequence": 1, "expert": 1})
    config.rollout_mesh.tensor = 4  # the chips of a host

    config.sampler.batch_buckets = (32,)
    config.sampler.turn_buckets = (256, 1024, 4096)
    config.sampler.length_buckets = (4096, 8192, 16384)
    config.trainer.length_buckets = (4096, 8192, 16384, 32768)

    config.judge.max_tokens = 1000  # paper: 4000; each of 120 votes has a cache of that size
    config.judge.rows = 4
    config.judge.length_buckets = (4096, 8192, 16384)
    config.adapt.attempts = 4  # paper: 8; so many prompts times attempts have a cache of 6 k
    config.adapt.max_tokens = 2048
    return config
