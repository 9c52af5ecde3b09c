"""All known arguments of Megatron-LM. Some arguments do not change the time or the memory of a
step, and some repeat facts of the stack."""

from sim.config.silent import Silent
from sim.interface.frameworks.arguments import Keys, Together
from sim.interface.frameworks.command_line import parsed, written
from sim.interface.frameworks.framework import Framework
from sim.interface.frameworks.megatron.experts import EXPERTS
from sim.interface.frameworks.megatron.layout import LAYOUT, SEARCH, completed
from sim.interface.frameworks.megatron.model import MODEL
from sim.parallel.plan import Plan

_LEARNING = """
    lr lr-* min-lr min-lr-* decoupled-lr decoupled-lr-* optimizer-*-lr *-warmup* weight-decay*
    adam-* clip-grad init-method-* initial-loss-scale loss-scale* finetune master-*
    moe-aux-loss-coeff moe-z-loss-coeff moe-router-load* moe-router-score* moe-router-bias*
    moe-router-topk-scaling*
"""
_DATA = """
    train-* split data-impl data-cache* data-args* data-sharding dataloader-* num-dataset-*
    num-workers mock-data reset-* eod-* tokenizer-* no-create-* no-mmap-*
"""
_FILES = """
    *-path *-dir *-file load save no-load-* no-save-* ckpt-* dist-ckpt-* use-dist-ckpt async-save
    auto-detect-ckpt-format override-* use-mcore-models
"""
_RUNNING = """
    seed log-* *-interval eval-* exit-* wandb-* tensorboard-* timing-* manual-gc* standalone
    distributed-backend distributed-timeout* nproc[-_]per[-_]node nnodes node[-_]rank rdzv*
    ddp-average*
"""
_FORMULAS = """
    rotary-seq* rotary-interleaved rotary-scaling* rope-type layernorm-epsilon apply-layernorm-1p
    attention-softmax-in-fp32
"""
ARGUMENTS: Silent = {"": _LEARNING + _DATA + _FILES + _RUNNING + _FORMULAS}

_BESIDE_THE_JOB = """
    checkpoint dist logger rng tokenizer profiling scheduler straggler nvrx_straggler ft
    inprocess_restart rerun_state_machine validation tensor_inspect
    optimizer_config_override_provider log resume
"""
_OPTIMIZER = """
    *lr adam_* lion_* muon_* sgd_* clip_grad *weight_decay *wd* *loss_scale* hysteresis
    params_dtype main_*_dtype exp_avg_sq_dtype bf16 fp16 pin_* store_* use_precision_aware_optimizer
    use_distributed_optimizer
"""
_MODEL = """
    activation_func apply_query* apply_rope_* async_* attention_softmax* barrier_* batch_p2p_*
    beta_* bf16 bias_*fusion clone_* cpu_offloading_act* cpu_offloading_ret* cross_entropy_*
    cuda_graph_impl cuda_graph_scope cuda_graph_warmup* deallocate_* delay_* *dtype embedding_init*
    fp16 fp4_* fp8_* generation_config* grad_reduce* gradient_accumulation_fusion inference_*
    init_method* kitchen_* layernorm_* linear_conv_* linear_key_* linear_num_* linear_value_*
    make_vocab* mamba_* masked_softmax_fusion min_offloaded* mlp_chunks* mscale* mtp_enabled*
    mtp_loss* mup_* num_layers_at_* overlap_p2p_comm* parallel_output perform_init*
    persist_layer_norm qk_clip_* scatter_embedding* seq_len_interp* share_* softmax_scale
    softmax_type tp_comm_bootstrap* tp_comm_bulk* tp_comm_overlap_ag* tp_comm_overlap_rs*
    tp_comm_split* transformer_impl* transformer_layer_spec* use_cpu* use_mamba* use_te*
    use_transformer_engine* wgrad_*
"""
_POSITIONS = """
    rope_* rotary_* yarn_* original_max* old_context* scale_factor low_freq_* high_freq_*
"""
_EXPERTS = """
    moe_aux_loss* moe_deepep_num* moe_hybridep_num* moe_expert_capacity* moe_token_drop_policy
    moe_z_loss* moe_router_bias* moe_router_dtype* moe_router_enable* moe_router_force*
    moe_router_fusion* moe_router_load* moe_router_pre* moe_router_score* moe_router_topk_scal*
"""
_STRATEGY = """
    ckpt_* ddp.* gradient_as_bucket_view load_* pipeline_dtype progress_* restore_* save_*
    use_te_rng*
"""
RECIPES: Silent = {
    "": f"standalone rdzv* no-python yes model {_BESIDE_THE_JOB} "
    "optim.config optim.lr_scheduler* trainer.strategy "
    "trainer.strategy.ddp trainer.plugins data trainer train dataset optim",
    _BESIDE_THE_JOB: "*",
    "train dataset data": "* !rampup* !packed*",
    "optimizer optim.config": _OPTIMIZER,
    "model": "config tokenizer* optim* hf_*",
    "model model.config": _MODEL + _POSITIONS + _EXPERTS,
    "peft": "alpha dropout* lora_* exclude_* network_* a2a*",
    "ddp": """average_* check_* fsdp_all_gather* gradient_reduce_* num_distributed_* outer_dp*
        megatron_fsdp_* align_* bucket_size keep_* fp8_param_gather""",
    "comm_overlap": "tp_comm_bootstrap* bucket_size wgrad_deferral_limit",
    "mixed_precision trainer.plugins": """*dtype fp8_amax* fp8_margin* fp8_wgrad* fp8_param*
        *loss_scale* hysteresis fp32 fp4_recipe precision reuse_* autocast*""",
    "trainer": "* !strategy* !plugins* !callbacks*",
    "trainer.strategy": _STRATEGY,
    "trainer.callbacks": """[0-9] [0-9].* ![0-9].user_buffers* ![0-9].overlap* ![0-9].tp_comm*
        ![0-9].defer*""",
}


# Arguments for Megatron-LM's default behaviour, or for facts in the stack megatron-core.
_ASSUMED = (
    *("transformer-impl", "use-flash-attn", "accumulate-allreduce-grads-in-fp32"),
    *("cross-entropy-loss-fusion", "cross-entropy-fusion-impl", "moe-grouped-gemm"),
    *("no-async-tensor-model-parallel-allreduce", "overlap-p2p-communication"),
    *("use-cpu-initialization", "deterministic-mode", "moe-router-dtype", "moe-permute-fusion"),
)


def connections(plan: Plan, generation: str) -> dict[str, str]:
    """Return CUDA_DEVICE_MAX_CONNECTIONS=1 if Megatron-LM demands it: with tensor or context
    parallelism before Blackwell, but not with FSDP or overlapped exchanges of experts
    (megatron/training/arguments.py, validate_args)."""
    divided = plan.tp * plan.cp > 1 and generation != "blackwell"
    beside = plan.zero > 1 or plan.overlap_experts
    return {"CUDA_DEVICE_MAX_CONNECTIONS": "1"} if divided and not beside else {}


def _write_format(keys: Keys) -> dict[str, tuple[str, ...]]:
    """Write the only format of checkpoints that Megatron-FSDP supports (validate_args)."""
    return {"ckpt-format": ("fsdp_dtensor",)} if keys.get("plan.zero", 0) > 1 else {}


FORMAT = Together((), lambda given: {}, _write_format)

FRAMEWORK = Framework(
    ending=".sh",
    script="pretrain_gpt.py",
    starts="--train-iters N --lr RATE --data-path DATA --tokenizer-type TYPE "
    "--tokenizer-model MODEL",
    environment=connections,
    parse=parsed,
    render=written,
    table=(*MODEL, *EXPERTS, *LAYOUT, FORMAT),
    silent=ARGUMENTS,
    assumed=_ASSUMED,
    stack="megatron-core",
    needs="num-layers",
    search=SEARCH,
    completed=completed,
)
