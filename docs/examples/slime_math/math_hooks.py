"""Hooks of Slime that collect with a collector of your own: that of the Tinker example, as it is.

    export PYTHONPATH=docs/examples/slime_math:docs/examples/tinker_math
    focus train --task math --trainer slime --problems problems.jsonl --model MODEL \
        --set trainer.hooks=math_hooks --set trainer.args="--actor-num-gpus-per-node 8 ..."

``--task math`` gives the problems; how one is collected is said in math_training.py.
"""

import os

from focus_adapter_slime import make_evaluate, make_generate
from math_training import collector_for

from focus_core import JsonlDirectory

generate = make_generate(
    collector_for,
    profile="token_chunk",  # the model has no tools; a reply is read segment by segment
    critic_sink=JsonlDirectory(os.environ.get("CRITIC_TARGETS", "critic-targets")),
)
evaluate = make_evaluate(collector_for, profile="token_chunk")
