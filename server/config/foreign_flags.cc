// One row for each answer.
#include "server/config/foreign_flags.h"

namespace quire {
namespace {

using flags::ForeignFlag;
constexpr ForeignFlag::Answer kInstead = ForeignFlag::Answer::kInstead;
constexpr ForeignFlag::Answer kNone = ForeignFlag::Answer::kNone;
constexpr ForeignFlag::Answer kNoEffect = ForeignFlag::Answer::kNoEffect;

constexpr ForeignFlag kForeign[] = {
    // Requests.
    {"seed|random-seed", kNone, true,
     "each request has its own seed (sampling.seed, quire generate --seed)"},
    {"temp|temperature|top-k|top-p|min-p|repeat-penalty|n-predict|n|predict|samplers", kNone, true,
     "sampling belongs to each request (quire generate --help)"},
    {"generation-config", kNoEffect, true,
     "defaults of sampling are read from generation_config.json in the model's directory"},
    {"override-generation-config|preferred-sampling-params", kNone, true,
     "defaults of sampling are read from generation_config.json in the model's directory: edit it "
     "there"},
    {"max-logprobs", kNone, true,
     "a request may ask for the 20 most likely tokens (output.top_logprobs)"},
    {"max-beam-width|beam-width", kNone, true, "it samples and has no beam search"},
    {"scheduling-policy|schedule-policy", kNone, true,
     "requests run by their priority, then in order of arrival"},
    {"schedule-conservativeness|new-token-ratio", kNone, true,
     "admission reserves output tokens by itself and preempts when blocks run out"},

    // Access.
    {"api-key|api-key-file|admin-api-key", kNone, true,
     "it serves this machine only: let a proxy that ends TLS check keys, or use --uds and the "
     "permissions of files"},
    {"enable-ssl-refresh", kNoEffect, false, "changed TLS files are always taken"},
    {"ssl-keyfile-password|ssl-ciphers", kNone, true,
     "keys are protected by the mode of their file, and the ciphers are those of TLS 1.2 and 1.3 "
     "with forward secrecy"},
    {"allowed-origins|allowed-methods|allowed-headers|root-path|uvicorn-log-level|middleware",
     kNone, true, "it serves gRPC and has no HTTP server for requests"},
    {"allow-credentials|disable-uvicorn-access-log", kNoEffect, false,
     "Quire serves gRPC and has no HTTP server for requests"},

    // The model.
    {"trust-remote-code", kNoEffect, false, "Quire never runs code of a checkpoint"},
    {"tokenizer-mode", kNone, true,
     "it has one tokenizer, which reads tokenizer.json, tokenizer.model or tekken.json"},
    {"jinja", kNoEffect, false, "the model's chat template is always used"},
    {"hf-token|hf-repo|hf-file|hfr|hff|revision|code-revision|tokenizer-revision|download-dir",
     kNone, true, "it downloads nothing: give --model a directory"},
    {"hf-config-path|hf-overrides|json-model-override-args|rope-scaling|rope-theta|"
     "rope-freq-base|rope-freq-scale",
     kNone, true, "the model's shape is config.json in its directory: edit it there"},
    {"lora|lora-modules|lora-paths|max-loras|max-lora-rank|max-loras-per-batch", kNone, true,
     "it serves weights without adapters: merge the adapter into the checkpoint"},
    {"enable-lora", kNone, false,
     "it serves weights without adapters: merge the adapter into the checkpoint"},
    {"speculative-config|speculative-model|speculative-algorithm|model-draft|md", kNone, true,
     "it guesses tokens by prompt lookup alone, without a second model: --speculate"},
    {"num-speculative-tokens|draft-max", kInstead, true, "--speculate"},
    {"guided-decoding-backend|structured-outputs-config|grammar-backend|grammar|grammar-file|"
     "json-schema",
     kNone, true, "it does not constrain output to a grammar"},
    {"enable-auto-tool-choice", kInstead, false, "--tool-call-parser"},
    {"enable-reasoning", kInstead, false, "--reasoning-parser"},
    {"reasoning-format", kInstead, true, "--reasoning-parser"},
    {"task|runner", kNone, true, "it generates text only"},
    {"is-embedding|embedding|embeddings|reranking", kNone, false, "it generates text only"},
    {"limit-mm-per-prompt|mmproj|mm-processor-kwargs", kNone, true, "it reads text only"},

    // Execution.
    {"enforce-eager|disable-cuda-graph", kInstead, false, "--cudagraph-capture-sizes none"},
    {"max-seq-len-to-capture|cuda-graph-max-bs", kInstead, true,
     "--cudagraph-capture-sizes 1,2,4,8"},
    {"compilation-config|O", kNone, true, "its kernels are compiled with the program"},
    {"enable-torch-compile", kNone, false, "its kernels are compiled with the program"},
    {"attention-backend|sampling-backend|decode-attention-backend|prefill-attention-backend",
     kNoEffect, true, "Quire has one implementation for each device"},
    {"flash-attn|fa|disable-custom-all-reduce|cont-batching|cb|enable-chunked-prefill|"
     "use-v2-block-manager|disable-overlap-schedule|multi-step-stream-outputs",
     kNoEffect, false, "Quire decides this itself"},
    {"num-scheduler-steps|max-num-partial-prefills|num-continuous-decode-steps", kNoEffect, true,
     "Quire decides this itself"},
    {"no-enable-chunked-prefill", kNone, false,
     "prompts are always computed in chunks: raise --max-num-batched-tokens for larger ones"},
    {"batch-size|b|ubatch-size|ub", kInstead, true, "--max-num-batched-tokens N"},
    {"threads-batch|tb", kInstead, true, "--cpu-threads N"},
    {"n-gpu-layers|gpu-layers|ngl", kInstead, true,
     "--device cuda or --device cpu, for all layers,"},
    {"main-gpu|mg|base-gpu-id", kInstead, true, "the variable CUDA_VISIBLE_DEVICES"},
    {"split-mode|sm|tensor-split|ts", kInstead, true, "--tensor-parallel-size N"},
    {"pipeline-parallel-size|pp|pp-size", kNone, true,
     "every rank has a part of every layer: see --tensor-parallel-size"},
    {"master-addr|master-port", kInstead, true, "--leader-address HOST:PORT"},
    {"data-parallel-size|dp|dp-size", kNone, true, "one server is one replica: start more servers"},
    {"enable-expert-parallel", kNone, false, "it serves dense models only"},
    {"ep-size|expert-parallel-size", kNone, true, "it serves dense models only"},
    {"distributed-executor-backend", kInstead, true, "--worker-process auto|on|off"},
    {"worker-use-ray", kInstead, false, "--worker-process auto|on|off"},
    {"backend", kNone, true, "it is one engine: see --device"},

    // Memory.
    {"swap-space", kInstead, true, "--kv-offloading-size GIB"},
    {"hicache-size|cpu-offload-cache-size", kInstead, true, "--kv-offloading-size GIB"},
    {"enable-hierarchical-cache", kInstead, false, "--kv-offloading-size GIB"},
    {"cpu-offload-gb", kNone, true, "weights stay on the device"},
    {"kv-cache-free-gpu-mem-fraction|kv-cache-free-gpu-memory-fraction|free-gpu-memory-fraction",
     kInstead, true, "--gpu-memory-utilization SHARE, of all memory and not of the free part,"},
    {"max-total-tokens", kInstead, true,
     "--kv-cache-memory-bytes BYTES or --num-blocks-override N"},
    {"disable-radix-cache|no-cache-prompt", kInstead, false, "--no-enable-prefix-caching"},
    {"cache-type-k|ctk|cache-type-v|ctv", kInstead, true, "--kv-cache-dtype TYPE, for K and V,"},
    {"preemption-mode", kNone, true,
     "a preempted request takes back the KV that was kept and computes the rest"},
    {"mlock|no-mmap", kNoEffect, false, "weights are read into memory once, at start"},

    // Operations.
    {"disable-log-requests|no-enable-log-requests", kInstead, false, "--no-log-requests"},
    {"enable-log-requests", kInstead, false, "--log-requests, which never logs prompts or answers"},
    {"log-disable", kInstead, false, "--log-level error"},
    {"disable-log-stats", kNoEffect, false, "statistics are at the metrics port, not in the log"},
    {"enable-metrics|metrics", kNoEffect, false, "metrics are always served; see --metrics-port"},
    {"extra-llm-api-options", kInstead, true, "--config FILE"},
    {"slots|no-slots|no-webui", kNoEffect, false, "Quire has no such page"},
};

}  // namespace

std::span<const ForeignFlag> ForeignFlags() { return kForeign; }

}  // namespace quire
