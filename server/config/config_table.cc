// The one place where a setting has its name, help, bounds and other servers' names.
#include "server/config/config_table.h"

#include <utility>

#include "server/config/foreign_flags.h"
#include "server/config/listening_settings.h"
#include "version/build_facts.h"

namespace quire {
namespace {

using flags::Flag;
using flags::Unit;

constexpr std::string_view kModel = "Model";
constexpr std::string_view kMemory = "Device and memory";
constexpr std::string_view kBatching = "Batching and admission";
constexpr std::string_view kSessions = "Sessions and cache";
constexpr std::string_view kOperations = "Operations";

constexpr double kMaxTokens = 16 << 20;  // longer than any context a model was made for
constexpr double kDay = 86400;
constexpr double kYear = 366 * kDay;

// As vLLM spells them.
constexpr char kDTypes[] = "auto|float32=float=fp32=f32|bfloat16=bf16|float16=half=fp16=f16";
constexpr char kKvDTypes[] =
    "auto|float32=float=fp32=f32|bfloat16=bf16|float16=half=fp16=f16|"
    "fp8=fp8_e4m3=float8_e4m3=e4m3";

constexpr char kNotes[] =
    "Every flag is also an environment variable (--max-num-seqs is QUIRE_MAX_NUM_SEQS) and a key "
    "of "
    "the\nconfig file. A flag beats the environment, which beats the file.\n"
    "Numbers: 32k is 32000, 32K is 32768; sizes 64MB or 64MiB; times 250ms, 90s, 30m, 12h, 2d; "
    "shares 0.9 or 90%.\n"
    "Exit codes: 0 ended as asked, 1 ended by force, 2 bad configuration, 3 cannot listen, "
    "4 model cannot be\nloaded, 5 device, 6 the system refused memory or threads.\n";

using Rows = std::vector<Flag>;

Flag ModelRow(EngineConfig* e) {
  return {.name = "model",
          .group = kModel,
          .help = "Hugging Face directory to serve",
          .target = &e->model,
          .aliases = "model-path|model-id|m",
          .placeholder = "PATH",
          .unset = "the bundled demo model"};
}

void AddModel(Settings* s, Rows* rows) {
  EngineConfig* e = &s->engine;
  rows->insert(
      rows->end(),
      {
          ModelRow(e),
          {.name = "dtype",
           .group = kModel,
           .help = "type of the weights in memory; auto: as stored, but on cuda no float32",
           .target = &e->dtype,
           .choices = kDTypes},
          {.name = "quantization",
           .group = kModel,
           .help = "matrices as 8-bit floats, a scale a row; auto: as stored; fp8: made so on load",
           .target = &e->quantization,
           .choices = "auto|none|fp8",
           .aliases = "q"},
          {.name = "load-format",
           .group = kModel,
           .help = "source of the weights; auto: safetensors; dummy: random, for benchmarks",
           .target = &e->load_format,
           .choices = "auto|safetensors|dummy"},
          {.name = "max-model-len",
           .group = kModel,
           .help = "most tokens of prompt and output together; 0: the model's own limit",
           .target = &e->max_model_len,
           .unit = Unit::kCount,
           .highest = kMaxTokens,
           .aliases = "context-length|max-seq-len|session-len|ctx-size|c"},
          {.name = "served-model-name",
           .group = kModel,
           .help = "names that requests may use, a b or a,b; answers carry the first",
           .target = &s->server.served_model_names,
           .aliases = "model-name|alias",
           .placeholder = "NAME",
           .unset = "the name of the model's repository, else of its directory",
           .many = true,
           .commas = true},
      });
}

// How requests' texts become tokens, and answers' tokens texts.
void AddText(ServerConfig* server, Rows* rows) {
  rows->insert(
      rows->end(),
      {
          {.name = "tokenizer",
           .group = kModel,
           .help = "directory of the tokenizer and the chat template",
           .target = &server->tokenizer,
           .aliases = "tokenizer-path",
           .placeholder = "PATH",
           .unset = "the model's directory"},
          {.name = "skip-tokenizer-init",
           .group = kModel,
           .help = "have no tokenizer: requests carry token ids only",
           .target = &server->skip_tokenizer_init},
          {.name = "chat-template",
           .group = kModel,
           .help = "file of a chat template to use instead of the model's own",
           .target = &server->chat_template,
           .aliases = "chat-template-file",
           .placeholder = "FILE",
           .unset = "the model's templates"},
          {.name = "reasoning-parser",
           .group = kModel,
           .help = "family whose markers of reasoning the model writes, none, or auto: by the chat "
                   "template",
           .target = &server->reasoning_parser,
           .placeholder = "NAME"},
          {.name = "tool-call-parser",
           .group = kModel,
           .help = "family whose tool calls the model writes, none, or auto: by the chat template",
           .target = &server->tool_call_parser,
           .placeholder = "NAME"},
          {.name = "logit-processors",
           .group = kModel,
           .help = "JSON file of biases, bans and bad words that requests may name",
           .target = &server->logit_processors,
           .placeholder = "FILE",
           .unset = "none"},
      });
}

void AddDevice(EngineConfig* e, Rows* rows) {
  rows->insert(
      rows->end(),
      {
          {.name = "device",
           .group = kMemory,
           .help = "where the model runs; auto: a GPU that can serve the model, else the cpu",
           .target = &e->device,
           .choices = "auto|cpu|cuda"},
          {.name = "tensor-parallel-size",
           .group = kMemory,
           .help = "ranks that share the model; on cuda each has a GPU of its own",
           .target = &e->tensor_parallel_size,
           .lowest = 1,
           .highest = 64,
           .aliases = "tp|tp-size|num-shard"},
          {.name = "nnodes",
           .group = kMemory,
           .help = "hosts that share the ranks evenly; node 0 serves, the others follow it",
           .target = &e->nnodes,
           .lowest = 1,
           .highest = 64},
          {.name = "node-rank",
           .group = kMemory,
           .help = "number of this host among --nnodes, from 0",
           .target = &e->node_rank,
           .highest = 63},
          {.name = "leader-address",
           .group = kMemory,
           .help = "HOST:PORT where node 0 listens for the others; the same on every node",
           .target = &e->leader_address,
           .aliases = "dist-init-addr",
           .placeholder = "ADDRESS",
           .unset = "none"},
          {.name = "group-key-file",
           .group = kMemory,
           .help = "file of a secret that all nodes share; without it, loopback addresses only",
           .target = &e->group_key_file,
           .placeholder = "FILE",
           .unset = "none"},
          {.name = "cpu-threads",
           .group = kMemory,
           .help = "compute threads of the cpu device; 0: one for each core",
           .target = &e->cpu_threads,
           .highest = 1024,
           .aliases = "threads|t"},
      });
}

void AddKvAndWorkers(EngineConfig* e, Rows* rows) {
  rows->insert(
      rows->end(),
      {
          {.name = "kv-cache-dtype",
           .group = kMemory,
           .help = "type of the KV cache; auto: float32 on the cpu, the weights' type on cuda; "
                   "fp8: e4m3",
           .target = &e->kv_cache_dtype,
           .choices = kKvDTypes},
          {.name = "kv-cache-memory-bytes",
           .group = kMemory,
           .help =
               "KV cache of the whole server; 0: 256 MiB on the cpu, the rest of the GPU on cuda",
           .target = &e->kv_cache_memory_bytes,
           .unit = Unit::kBytes,
           .highest = 0x1p46,
           .aliases = "max-cache-size"},
          {.name = "gpu-memory-utilization",
           .group = kMemory,
           .help = "share of a GPU's memory that the server may fill",
           .target = &e->gpu_memory_utilization,
           .unit = Unit::kShare,
           .lowest = 0.05,
           .highest = 1,
           .aliases = "mem-fraction-static"},
          {.name = "num-blocks-override",
           .group = kMemory,
           .help = "exact number of KV blocks; 0: computed from the bytes",
           .target = &e->num_blocks_override,
           .unit = Unit::kCount,
           .highest = 1 << 30,
           .aliases = "num-gpu-blocks-override"},
          {.name = "block-size",
           .group = kMemory,
           .help = "tokens in a KV block: 16, 32 or 64; 0: 16 on the cpu, 64 on cuda",
           .target = &e->block_size,
           .highest = 64,
           .aliases = "page-size|cache-block-seq-len"},
          {.name = "cudagraph-capture-sizes",
           .group = kMemory,
           .help = "batch sizes captured as CUDA graphs: auto, none or 1,2,4,8",
           .target = &e->cudagraph_capture_sizes,
           .aliases = "cuda-graph-sizes|cuda-graph-bs|cuda-graphs|cudagraph-capture-batch-sizes|"
                      "cuda-graph-batch-sizes",
           .placeholder = "SIZES"},
          {.name = "worker-process",
           .group = kMemory,
           .help = "run each rank in a process of its own; auto: on cuda only",
           .target = &e->worker_process,
           .choices = "auto|on=true|off=false"},
          {.name = "worker-step-timeout",
           .group = kMemory,
           .help = "replace a worker process that ends no step or copy for this long",
           .target = &e->worker_step_timeout_seconds,
           .unit = Unit::kSeconds,
           .lowest = 0.05,
           .highest = kDay},
          {.name = "max-worker-deaths",
           .group = kMemory,
           .help = "deaths of worker processes in five minutes; at the next the server ends",
           .target = &e->max_worker_deaths,
           .lowest = 0,
           .highest = 1000},
      });
}

void AddBatching(EngineConfig* e, Rows* rows) {
  rows->insert(
      rows->end(),
      {
          {.name = "max-num-seqs",
           .group = kBatching,
           .help = "maximum number of requests that run at once",
           .target = &e->max_num_seqs,
           .unit = Unit::kCount,
           .lowest = 1,
           .highest = 4096,
           .aliases = "max-running-requests|max-batch-size|max-seqs-per-batch|parallel|np"},
          {.name = "max-num-batched-tokens",
           .group = kBatching,
           .help = "most tokens of a step; 0: 512 (cpu), 2048 (cuda). Beside decodes 1024, unless "
                   "many wait",
           .target = &e->max_num_batched_tokens,
           .unit = Unit::kCount,
           .highest = 1 << 20,
           .aliases = "chunked-prefill-size|max-prefill-tokens|max-batch-prefill-tokens|"
                      "max-prefill-token-num|max-num-tokens|max-tokens-per-batch"},
          {.name = "pace-prompts",
           .group = kBatching,
           .help = "while requests decode, prompts get less of a step, from measured times",
           .target = &e->pace_prompts},
          {.name = "speculate",
           .group = kBatching,
           .help = "most tokens that a request guesses ahead, and its default; 0: none",
           .target = &e->speculate,
           .unit = Unit::kCount,
           .highest = 64},
          {.name = "speculate-step-tokens",
           .group = kBatching,
           .help = "decoding rows and guesses of a step together; with more rows, no guesses",
           .target = &e->speculate_step_tokens,
           .unit = Unit::kCount,
           .lowest = 2,
           .highest = 1024},
          {.name = "max-num-queued-reqs",
           .group = kBatching,
           .help = "maximum number of waiting requests; beyond it, UNAVAILABLE",
           .target = &e->max_num_queued_reqs,
           .unit = Unit::kCount,
           .lowest = 1,
           .highest = 1 << 20,
           .aliases = "max-queued-requests"},
          {.name = "max-num-queued-tokens",
           .group = kBatching,
           .help = "maximum number of waiting prompt tokens; 0: 8 Mi (8388608)",
           .target = &e->max_num_queued_tokens,
           .unit = Unit::kCount,
           .highest = 0x1p40},
      });
}

void AddSessions(EngineConfig* e, Rows* rows) {
  rows->insert(
      rows->end(),
      {
          {.name = "enable-prefix-caching",
           .group = kSessions,
           .help = "compute the equal beginnings of prompts once",
           .target = &e->enable_prefix_caching},
          {.name = "kv-offloading-size",
           .group = kSessions,
           .help = "host memory for idle KV; 0: none; -1: as the KV cache, up to a quarter of all",
           .target = &e->kv_offloading_size,
           .unit = Unit::kGibibytes,
           .lowest = -1,
           .highest = 0x1p16},
          {.name = "kv-checksum",
           .group = kSessions,
           .help = "verify KV that comes back from host memory; costs host time",
           .target = &e->kv_checksum},
          {.name = "session-idle-offload-after",
           .group = kSessions,
           .help = "idle time after which a session's KV is copied to host memory",
           .target = &e->session_idle_offload_after_seconds,
           .unit = Unit::kSeconds,
           .highest = kDay},
          {.name = "session-ttl",
           .group = kSessions,
           .help = "time without use after which a session ends, unless it sets its own",
           .target = &e->session_ttl_seconds,
           .unit = Unit::kSeconds,
           .lowest = 1,
           .highest = kYear},
          {.name = "session-max-ttl",
           .group = kSessions,
           .help = "maximum TTL a session may request",
           .target = &e->session_max_ttl_seconds,
           .unit = Unit::kSeconds,
           .lowest = 1,
           .highest = kYear},
          {.name = "session-pin-share",
           .group = kSessions,
           .help = "share of the KV cache that pinned sessions may hold",
           .target = &e->session_pin_share,
           .unit = Unit::kShare,
           .highest = 1},
          {.name = "max-sessions",
           .group = kSessions,
           .help = "maximum number of sessions; beyond it, RESOURCE_EXHAUSTED",
           .target = &e->max_sessions,
           .unit = Unit::kCount,
           .highest = 1 << 20},
          {.name = "max-session-tokens",
           .group = kSessions,
           .help = "maximum number of tokens in a tenant's sessions; 0: 64 Mi (67108864)",
           .target = &e->max_session_tokens,
           .unit = Unit::kCount,
           .highest = 0x1p40},
      });
}

void AddSessionDirectory(ServerConfig* s, Rows* rows) {
  rows->insert(
      rows->end(),
      {
          {.name = "session-dir",
           .group = kSessions,
           .help = "directory in which sessions survive the server; one server uses it at a time",
           .target = &s->session_dir,
           .placeholder = "DIR",
           .unset = "none"},
          {.name = "session-dir-size",
           .group = kSessions,
           .help = "maximum size of --session-dir; the longest unused KV goes first",
           .target = &s->session_dir_size,
           .unit = Unit::kBytes,
           .lowest = double{1 << 20},
           .highest = 0x1p50},
          {.name = "job-size",
           .group = kSessions,
           .help = "maximum size of jobs in --session-dir, inputs and results; a tenant has half",
           .target = &s->job_size,
           .unit = Unit::kBytes,
           .lowest = double{1 << 20},
           .highest = 0x1p50},
      });
}

void AddOperations(ServerConfig* s, Rows* rows) {
  rows->insert(
      rows->end(),
      {
          {.name = "text-threads",
           .group = kOperations,
           .help = "threads for tokenizing; 0: a quarter of the cores",
           .target = &s->front.text_threads,
           .highest = 256},
          {.name = "shutdown-timeout",
           .group = kOperations,
           .help = "time that running requests have to finish after SIGTERM",
           .target = &s->shutdown_timeout_seconds,
           .unit = Unit::kSeconds,
           .highest = kDay,
           .aliases = "graceful-termination-timeout"},
          {.name = "drain-delay",
           .group = kOperations,
           .help = "time after SIGTERM in which new requests are accepted, with health off",
           .target = &s->drain_delay_seconds,
           .unit = Unit::kSeconds,
           .highest = 600},
          {.name = "hung-after",
           .group = kOperations,
           .help = "turn health off when work waits this long and no step ends",
           .target = &s->hung_after_seconds,
           .unit = Unit::kSeconds,
           .lowest = 2,
           .highest = kDay,
           .aliases = "watchdog-timeout"},
          {.name = "log-format",
           .group = kOperations,
           .help = "format of the log lines on stderr, and of the page of --check",
           .target = &s->log_format,
           .choices = "text|json"},
          {.name = "log-requests",
           .group = kOperations,
           .help = "log a line for each finished request, never its text",
           .target = &s->front.log_requests},
          {.name = "log-level",
           .group = kOperations,
           .help = "minimum log severity",
           .target = &s->log_level,
           .choices = "debug|info|warning=warn|error"},
          {.name = "otlp-endpoint",
           .group = kOperations,
           .help = "collector that traces are sent to, as HOST:PORT of OTLP over gRPC",
           .target = &s->otlp_endpoint,
           .aliases = "otlp-traces-endpoint",
           .placeholder = "ADDRESS",
           .unset = "none"},
          {.name = "otlp-service-name",
           .group = kOperations,
           .help = "name of this service in its traces",
           .target = &s->otlp_service_name,
           .placeholder = "NAME"},
          {.name = "trace-sample-ratio",
           .group = kOperations,
           .help = "share of the traces that begin here to record; a caller's traceparent decides",
           .target = &s->trace_sample_ratio,
           .unit = Unit::kShare,
           .highest = 1},
      });
}

// Answers that the program gives instead of serving.
void AddModes(Settings* settings, Rows* rows) {
  rows->insert(
      rows->end(),
      {
          {.name = "check",
           .group = kOperations,
           .help = "say in a page what is in the model's directory and whether it would start",
           .target = &settings->check},
          {.name = "dry-run",
           .group = kOperations,
           .help = "print the configuration and the memory plan as JSON, then exit",
           .target = &settings->dry_run},
      });
}

}  // namespace

std::vector<Flag> SettingsTable(Settings* settings) {
  Rows rows;
  AddModel(settings, &rows);
  AddText(&settings->server, &rows);
  AddDevice(&settings->engine, &rows);
  AddKvAndWorkers(&settings->engine, &rows);
  AddBatching(&settings->engine, &rows);
  AddSessions(&settings->engine, &rows);
  AddSessionDirectory(&settings->server, &rows);
  AddListening(&settings->server, &rows);
  AddOperations(&settings->server, &rows);
  AddModes(settings, &rows);
  return rows;
}

flags::Program ServerProgram(Settings* settings, std::string* config_path) {
  flags::Program program{.root = {.name = "quire-server",
                                  .help = "Serves a language model over gRPC: without flags the "
                                          "bundled demo model, on this machine only.",
                                  .flags = SettingsTable(settings),
                                  .positionals = {ModelRow(&settings->engine)}},
                         .version = ThisBuild().version,
                         .build = Describe(ThisBuild()),
                         .noun = "setting",
                         .notes = kNotes,
                         .foreign = ForeignFlags()};
  program.root.flags.push_back({.name = "config",
                                .group = kOperations,
                                .help = "file of settings: a JSON object with the same names",
                                .target = config_path,
                                .placeholder = "FILE",
                                .unset = "none"});
  return program;
}

}  // namespace quire
