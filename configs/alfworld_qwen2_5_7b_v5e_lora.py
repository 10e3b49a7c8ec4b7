"""The household experiment with a context of 16 k on 16 TPU v5e chips: adapters on an int8 Qwen2.5-7B as policy, 14B as judge.

    launch/tpu_pod.sh --name=qwen --type=v5litepod-16 --zone=ZONE --bucket=BUCKET -- \
        --config=configs/alfworld_qwen2_5_7b_v5e_lora.py --config.world.data=GAMES \
        --config.checkpoint.policy=FOLDER --config.checkpoint.judge=FOLDER --config.checkpoint.rewriter=FOLDER

Hardware: v5litepod-16; a host has 4 chips of 16 GB.
Wall time: not measured; README.md says what the compiler predicts.
Expected result: not known; the paper trains all parameters.
"""

from ml_collections import ConfigDict

from configs.alfworld_qwen2_5_7b_v5e import get_config as on_v5e


def get_config() -> ConfigDict:
    config = on_v5e()
    config.mesh = ConfigDict({"data": 1, "fsdp": 2, "tensor": 4, "sequence": 2, "expert": 1})
    # A chip has no room for more beside the judge's gradient: a smaller rewriter (paper: 4B), one row for each half of the chips.
    config.checkpoint.rewriter = "qwen3-0.6b"
    config.trainer.tokens_per_batch = 34816
    for role in (config.policy, config.judge):
        role.lora = ConfigDict(
            {"rank": 32, "alpha": 32.0, "targets": ("wq", "wk", "wv", "wo"), "int8_base": True}
        )
        role.learning_rate = 1e-5
    return config
