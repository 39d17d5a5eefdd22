"""The families of tests/testdata/models, for make_checkpoints.py: one small case or two for each.

A case is (configuration class, its settings, how to store it). The store says
  old      config.json as transformers 4 wrote it: most published checkpoints are so;
  model    the class of the model where it is not that of the configuration;
  zeros    norm weights are stored around 0, because the family adds 1;
  embedding  the standard deviation of the embedding, where 0.5 would drown the layers;
  lengths  of the prompts, where not the usual ones;
  head_dim of the published models, where not 128, which --wide makes the case's;
  wide     further settings of the case with --wide;
  wide_store  changes to this with --wide. A smaller embedding: where a tied head multiplies it with
           itself, a token would follow itself for ever in a wider model;
  only_wide  too large to keep: made with --wide alone;
  finish   a function of (config.json, tensors) that gives the checkpoint the form of the family
           after transformers has computed the expected values with a class of equal arithmetic:
           the published code of that family is not part of transformers, or writes other names.
"""

import torch
from transformers import (
    Cohere2Config,
    CohereConfig,
    Exaone4Config,
    Gemma2Config,
    Gemma3Config,
    Gemma3ForConditionalGeneration,
    Gemma3TextConfig,
    Glm4Config,
    GlmConfig,
    GraniteConfig,
    LlamaConfig,
    Mistral3Config,
    Mistral3ForConditionalGeneration,
    MistralConfig,
    Olmo2Config,
    Phi3Config,
    Qwen2Config,
    SeedOssConfig,
    SmolLM3Config,
    StableLmConfig,
    Starcoder2Config,
)

# Small enough that all families together take less than three megabytes.
SMALL = dict(
    vocab_size=128,
    hidden_size=32,
    intermediate_size=48,
    num_hidden_layers=3,
    num_attention_heads=4,
    num_key_value_heads=2,
    max_position_embeddings=512,
    tie_word_embeddings=False,
    bos_token_id=1,
    eos_token_id=2,
    pad_token_id=0,
)


def rope(theta=10000.0, **more):
    return dict(rope_type=more.pop("rope_type", "default"), rope_theta=theta, **more)


def longrope(original, pairs):
    return rope(
        rope_type="longrope",
        short_factor=[1.0 + 0.1 * i for i in range(pairs)],
        long_factor=[1.0 + 1.5 * i for i in range(pairs)],
        original_max_position_embeddings=original,
    )


def rename(tensors, pairs):
    """Every name with each `old` part replaced by `new`, in order."""
    renamed = {}
    for name, tensor in tensors.items():
        for old, new in pairs:
            name = name.replace(old, new)
        renamed[name] = tensor
    return renamed


def to_exaone(config, tensors):
    config.update(architectures=["ExaoneForCausalLM"], model_type="exaone")
    config["num_layers"] = config.pop("num_hidden_layers")
    config["layer_norm_epsilon"] = config.pop("rms_norm_eps")
    config["activation_function"] = config.pop("hidden_act")
    for key in ("attention_bias", "mlp_bias"):
        config.pop(key)
    names = [
        ("model.embed_tokens", "transformer.wte"),
        ("model.layers.", "transformer.h."),
        ("model.norm", "transformer.ln_f"),
        ("input_layernorm", "ln_1"),
        ("post_attention_layernorm", "ln_2"),
        ("self_attn.o_proj", "attn.attention.out_proj"),
        ("self_attn.", "attn.attention."),
        ("mlp.gate_proj", "mlp.c_fc_0"),
        ("mlp.up_proj", "mlp.c_fc_1"),
        ("mlp.down_proj", "mlp.c_proj"),
    ]
    return rename(tensors, names)


def to_internlm3(config, tensors):
    config.update(architectures=["InternLM3ForCausalLM"], model_type="internlm3")
    config["qkv_bias"] = config.pop("attention_bias")
    config["bias"] = config.pop("mlp_bias")
    return tensors


def to_mimo(config, tensors):
    """Qwen2 and a layer that guesses the token after the next, which a server does not need."""
    config.update(architectures=["MiMoForCausalLM"], model_type="mimo", num_nextn_predict_layers=1)
    width = config["hidden_size"]
    extra = {
        "model.mtp_layers.0.input_proj.weight": torch.ones(width, 2 * width, dtype=torch.bfloat16),
        "model.mtp_layers.0.token_layernorm.weight": torch.ones(width, dtype=torch.bfloat16),
    }
    return {**tensors, **extra}


def to_published_names(config, tensors):
    """Models of several parts: "language_model.model." instead of "model.language_model."."""
    names = [
        ("model.language_model.", "language_model.model."),
        ("model.vision_tower.", "vision_tower."),
        ("model.multi_modal_projector.", "multi_modal_projector."),
    ]
    tensors = rename(tensors, names)
    if "lm_head.weight" in tensors:
        tensors["language_model.lm_head.weight"] = tensors.pop("lm_head.weight")
    return tensors


TINY_VISION = dict(
    hidden_size=8,
    intermediate_size=8,
    num_hidden_layers=1,
    num_attention_heads=1,
    image_size=28,
    patch_size=14,
)
GEMMA_WINDOWS = {
    "full_attention": rope(1000000.0, rope_type="linear", factor=8.0),
    "sliding_attention": rope(10000.0),
}

FAMILY_CASES = {
    "granite": (
        GraniteConfig,
        dict(
            tie_word_embeddings=True,
            embedding_multiplier=12.0,
            residual_multiplier=0.22,
            attention_multiplier=0.3,
            logits_scaling=8.0,
        ),
        dict(
            old=True,
            embedding=0.03,
            wide_store=dict(embedding=0.0075),
            wide=dict(attention_multiplier=0.08),
        ),
    ),
    "granite-bias": (
        GraniteConfig,
        dict(
            head_dim=80,
            num_attention_heads=2,
            num_key_value_heads=1,
            num_hidden_layers=2,
            attention_bias=True,
            mlp_bias=True,
            embedding_multiplier=6.0,
            residual_multiplier=0.5,
            attention_multiplier=0.1,
            logits_scaling=3.0,
        ),
        dict(embedding=0.1, head_dim=80),
    ),
    "phi3": (Phi3Config, dict(sliding_window=37, hidden_size=64), dict(old=True)),
    "phi3-short": (
        Phi3Config,
        dict(
            hidden_size=64,
            max_position_embeddings=4096,
            original_max_position_embeddings=512,
            tie_word_embeddings=True,
            partial_rotary_factor=0.75,
            rope_parameters=longrope(512, 6),
        ),
        dict(old=True, wide=dict(rope_parameters=longrope(512, 48))),
    ),
    # Every prompt is past the original length, so that transformers takes the long factors too.
    "phi3-long": (
        Phi3Config,
        dict(
            hidden_size=64,
            max_position_embeddings=512,
            original_max_position_embeddings=16,
            rope_parameters=longrope(16, 8),
        ),
        dict(
            old=True,
            lengths=(17, 33, 300),
            head_dim=96,
            # Longrope multiplies scores by more, the shorter the original length is, and peaked
            # attention makes the errors of bf16 larger.
            wide=dict(
                num_hidden_layers=2,
                original_max_position_embeddings=64,
                rope_parameters=longrope(64, 48),
            ),
            wide_store=dict(lengths=(65, 97, 300)),
        ),
    ),
    "olmo2": (Olmo2Config, dict(), dict(old=True)),
    "smollm3": (
        SmolLM3Config,
        dict(num_hidden_layers=4, tie_word_embeddings=True, rope_parameters=rope(2000000.0)),
        dict(old=True),
    ),
    "falcon3": (
        LlamaConfig,
        dict(
            head_dim=256,
            num_attention_heads=2,
            num_key_value_heads=1,
            num_hidden_layers=2,
            rope_parameters=rope(1000042.0),
        ),
        dict(old=True, head_dim=256),
    ),
    "seed-oss": (
        SeedOssConfig,
        dict(
            head_dim=96,
            num_attention_heads=2,
            num_key_value_heads=1,
            num_hidden_layers=2,
            attention_out_bias=True,
        ),
        dict(old=True),
    ),
    "internlm3": (
        LlamaConfig,
        dict(head_dim=16, attention_bias=True, mlp_bias=True),
        dict(old=True, finish=to_internlm3),
    ),
    "mimo": (Qwen2Config, dict(), dict(old=True, finish=to_mimo)),
    "exaone": (LlamaConfig, dict(), dict(old=True, finish=to_exaone)),
    "exaone4": (
        Exaone4Config,
        dict(num_hidden_layers=4, sliding_window=37, rope_parameters=rope(1000000.0)),
        {},
    ),
    "exaone4-full": (
        Exaone4Config,
        dict(sliding_window=None, layer_types=["full_attention"] * 3, tie_word_embeddings=True),
        dict(wide_store=dict(embedding=0.05)),
    ),
    "mistral-small3": (
        Mistral3Config,
        dict(
            text_config=dict(
                {k: v for k, v in SMALL.items() if k != "tie_word_embeddings"},
                model_type="mistral",
                head_dim=24,
                sliding_window=None,
                tie_word_embeddings=False,
                rope_parameters=rope(1000000000.0),
            ),
            vision_config=dict(TINY_VISION, model_type="pixtral", head_dim=8),
            tie_word_embeddings=False,
        ),
        dict(model=Mistral3ForConditionalGeneration, finish=to_published_names),
    ),
    "gemma2": (
        Gemma2Config,
        dict(
            num_hidden_layers=4,
            head_dim=24,
            sliding_window=37,
            query_pre_attn_scalar=20,
            attn_logit_softcapping=5.0,
            final_logit_softcapping=0.5,
            tie_word_embeddings=True,
        ),
        dict(
            old=True,
            zeros=True,
            embedding=0.05,
            wide_store=dict(embedding=0.006),
            head_dim=256,
            wide=dict(query_pre_attn_scalar=256, final_logit_softcapping=0.3),
        ),
    ),
    "gemma3": (
        Gemma3TextConfig,
        dict(
            num_hidden_layers=4,
            head_dim=32,
            sliding_window=37,
            sliding_window_pattern=3,
            query_pre_attn_scalar=20,
            tie_word_embeddings=True,
            rope_parameters=GEMMA_WINDOWS,
        ),
        dict(
            old=True,
            zeros=True,
            embedding=0.05,
            wide_store=dict(embedding=0.006),
            head_dim=256,
            wide=dict(query_pre_attn_scalar=256),
        ),
    ),
    "gemma3-vision": (
        Gemma3Config,
        dict(
            text_config=dict(
                SMALL,
                num_hidden_layers=2,
                head_dim=16,
                sliding_window=37,
                query_pre_attn_scalar=20,
                layer_types=["sliding_attention", "full_attention"],
                tie_word_embeddings=True,
                rope_parameters=GEMMA_WINDOWS,
            ),
            vision_config=dict(TINY_VISION, model_type="siglip_vision_model"),
            mm_tokens_per_image=4,
            image_token_index=127,
            boi_token_index=126,
            eoi_token_index=125,
            tie_word_embeddings=True,
        ),
        dict(
            model=Gemma3ForConditionalGeneration,
            finish=to_published_names,
            zeros=True,
            embedding=0.05,
            wide_store=dict(embedding=0.006),
            head_dim=256,
            wide=dict(query_pre_attn_scalar=256),
        ),
    ),
    "glm": (GlmConfig, dict(head_dim=16, rope_parameters=rope(partial_rotary_factor=0.5)), {}),
    "glm4": (
        Glm4Config,
        dict(head_dim=24, rope_parameters=rope(partial_rotary_factor=0.5)),
        dict(old=True),
    ),
    "stablelm": (
        StableLmConfig,
        dict(hidden_size=64, use_qkv_bias=True, rope_parameters=rope(partial_rotary_factor=0.25)),
        dict(old=True, head_dim=64),
    ),
    "stablelm-parallel": (
        StableLmConfig,
        dict(
            hidden_size=64,
            qk_layernorm=True,
            use_parallel_residual=True,
            rope_parameters=rope(partial_rotary_factor=0.25),
        ),
        dict(head_dim=160),
    ),
    "starcoder2": (
        Starcoder2Config,
        dict(sliding_window=37, tie_word_embeddings=True, rope_parameters=rope(999999.0)),
        dict(old=True, wide_store=dict(embedding=0.05)),
    ),
    "cohere": (
        CohereConfig,
        dict(tie_word_embeddings=True, logit_scale=0.0625, rope_parameters=rope(75000.0)),
        dict(old=True, wide_store=dict(embedding=0.05)),
    ),
    "cohere-qk-norm": (
        CohereConfig,
        dict(tie_word_embeddings=True, use_qk_norm=True, logit_scale=0.8333),
        dict(wide_store=dict(embedding=0.05)),
    ),
    "cohere2": (
        Cohere2Config,
        dict(
            num_hidden_layers=4,
            sliding_window=37,
            tie_word_embeddings=True,
            logit_scale=0.25,
            rope_parameters=rope(50000.0),
        ),
        dict(wide_store=dict(embedding=0.05)),
    ),
}


def shaped(store=None, **changes):
    """The plain decoder in a shape of its own, as narrow as that allows."""
    settings = dict(
        hidden_size=16,
        intermediate_size=24,
        num_hidden_layers=2,
        num_attention_heads=2,
        num_key_value_heads=1,
        head_dim=8,
        sliding_window=None,
    )
    # Not LlamaConfig, which wants the width to divide by the heads.
    return MistralConfig, {**settings, **changes}, {"head_dim": 64, **(store or {})}


def heads_of(size):
    return shaped(dict(head_dim=size), head_dim=size)


def groups_of(size, kv_heads):
    return shaped(num_attention_heads=size * kv_heads, num_key_value_heads=kv_heads)


SHAPE_CASES = {
    "shape-heads-80": heads_of(80),
    "shape-heads-96": heads_of(96),
    "shape-heads-112": heads_of(112),
    "shape-heads-192": heads_of(192),
    "shape-heads-256": heads_of(256),
    "shape-group-1": groups_of(1, 2),
    "shape-group-3": groups_of(3, 2),
    "shape-group-5": groups_of(5, 2),
    "shape-group-24": groups_of(24, 1),
    "shape-group-48": groups_of(48, 1),
    "shape-odd-width": shaped(dict(wide=dict(intermediate_size=329)), intermediate_size=25),
    # Odd on each of two ranks.
    "shape-odd-share": shaped(dict(wide=dict(intermediate_size=658)), intermediate_size=50),
    # One layer: the best of so many logits leads by little, so the errors must be small.
    "shape-vocabulary": shaped(
        dict(only_wide=True, wide=dict(hidden_size=64)),
        vocab_size=262144,
        num_hidden_layers=1,
        tie_word_embeddings=True,
    ),
}
