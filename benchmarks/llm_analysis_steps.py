"""llm-analysis' seconds of steps, run by the Python that has it: rows come in, and go out, as JSON.

Everything but the job is as llm-analysis has it by default.
"""

import json
import logging
import sys
import time

from llm_analysis.analysis import ActivationRecomputation, DSZeRO, LLMAnalysis
from llm_analysis.config import ModelConfig, ParallelismConfig, get_gpu_config_by_name

GPU = "a100-sxm-80gb"
RERUN = {
    "none": ActivationRecomputation.NONE,
    "selective": ActivationRecomputation.SELECTIVE,
    "full": ActivationRecomputation.FULL,
}


def seconds(row: dict) -> float:
    """A step's."""
    count = {key: int(row[key]) for key in ("layers", "heads", "hidden", "vocab", "seq", "ffn")}
    model = ModelConfig(
        name=row["id"],
        num_layers=count["layers"],
        n_head=count["heads"],
        hidden_dim=count["hidden"],
        vocab_size=count["vocab"],
        max_seq_len=count["seq"],
        ffn_embed_dim=count["ffn"],
    )
    tp, pp, dp = (int(row[key]) for key in ("tp", "pp", "dp"))
    split = tp if row["sequence_parallel"] else 1
    parallel = ParallelismConfig(tp_size=tp, pp_size=pp, dp_size=dp, sp_size=split)
    analysis = LLMAnalysis(model, get_gpu_config_by_name(GPU), parallelism_config=parallel)
    told = analysis.training(
        batch_size_per_gpu=int(row["microbatch"]),
        global_batch_size=int(row["global_batch"]),
        seq_len=count["seq"],
        activation_recomputation=RERUN[row["recompute"]],
        ds_zero=DSZeRO.STAGE_1,
        flash_attn=row["attention"] == "flash",
        softmax_dropout=True,
    )
    return told["latency_per_iter"]


def main() -> None:
    logging.disable()
    rows = json.load(sys.stdin)
    began = time.perf_counter()
    steps = [seconds(row) for row in rows]
    json.dump({"steps": steps, "seconds": time.perf_counter() - began}, sys.stdout)


if __name__ == "__main__":
    main()
