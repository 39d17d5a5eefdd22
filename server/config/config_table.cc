// The rows, the names other servers use for them, and how a value is read and written.
#include "server/config/config_table.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdio>
#include <limits>
#include <utility>
#include <vector>

namespace quire {
namespace {

constexpr std::string_view kModel = "Model";
constexpr std::string_view kMemory = "Device and memory";
constexpr std::string_view kBatching = "Batching and admission";
constexpr std::string_view kSessions = "Sessions and cache";
constexpr std::string_view kListening = "Listening";
constexpr std::string_view kOperations = "Operations";

constexpr double kMaxPort = 65535;

// Where an engine setting lies and what it accepts is the engine's to say.
struct EngineRow {
  std::string_view name;
  std::string_view group;
  std::string_view help;
  FieldUnit unit = FieldUnit::kNone;
};

constexpr EngineRow kEngineRows[] = {
    {"model", kModel, "Hugging Face directory to serve; empty: the bundled demo model"},
    {"dtype", kModel,
     "type of the weights in memory; auto: as stored, on cuda bfloat16 for float32"},
    {"load-format", kModel,
     "where weights come from; auto: safetensors; dummy: random ones, for benchmarks"},
    {"max-model-len", kModel,
     "tokens of prompt and output together; 0: what the model was made for"},
    {"device", kMemory, "where the model runs; auto: a GPU if there is one"},
    {"tensor-parallel-size", kMemory, "ranks that share the model"},
    {"cpu-threads", kMemory, "compute threads of the cpu device; 0: all cores"},
    {"kv-cache-dtype", kMemory,
     "type of the KV cache; auto: float32 on the cpu, as the weights on cuda"},
    {"kv-cache-memory-bytes", kMemory,
     "KV cache of the whole server; 0: 256 MiB on the cpu, the rest of the GPU on cuda",
     FieldUnit::kBytes},
    {"gpu-memory-utilization", kMemory, "share of a GPU's memory that the server may fill"},
    {"num-blocks-override", kMemory, "exact number of KV blocks; 0: from the bytes"},
    {"block-size", kMemory, "tokens of a KV block: 16, 32 or 64; 0: 16 on the cpu, 64 on cuda"},
    {"cudagraph-capture-sizes", kMemory,
     "batch sizes captured as CUDA graphs: auto, none or 1,2,4,8"},
    {"worker-process", kMemory, "run each rank as a process of its own; auto: on cuda"},
    {"worker-step-timeout", kMemory,
     "a worker process that has work and ends no step or copy for so long is replaced",
     FieldUnit::kSeconds},
    {"max-num-seqs", kBatching, "requests that run at once"},
    {"max-num-batched-tokens", kBatching, "tokens of a step; 0: 512 on the cpu, 2048 on cuda"},
    {"max-num-queued-reqs", kBatching, "requests that may wait; beyond, UNAVAILABLE"},
    {"max-num-queued-tokens", kBatching, "prompt tokens that may wait; 0: 8 Mi"},
    {"enable-prefix-caching", kSessions, "compute equal beginnings of prompts once"},
    {"kv-offloading-size", kSessions,
     "host memory for idle KV; 0: none; -1: as the KV cache, up to a quarter of all",
     FieldUnit::kGibibytes},
    {"kv-checksum", kSessions, "verify KV that comes back from host memory; it costs host time"},
    {"session-idle-offload-after", kSessions, "idle time after which a session's KV is copied out",
     FieldUnit::kSeconds},
    {"session-ttl", kSessions, "a session unused for so long ends, unless it says otherwise",
     FieldUnit::kSeconds},
    {"session-max-ttl", kSessions, "the longest that a session may say", FieldUnit::kSeconds},
    {"session-pin-share", kSessions, "share of the KV cache that pinned sessions may hold"},
    {"max-sessions", kSessions, "sessions there may be; beyond, RESOURCE_EXHAUSTED"},
    {"max-session-tokens", kSessions, "tokens of all sessions of a tenant; 0: 64 Mi"},
};

EngineSetting EngineSettingOf(std::string_view name) {
  for (const EngineSetting& setting : EngineSettings()) {
    if (setting.name == name) return setting;
  }
  return {};  // config_flags_test compares the two tables
}

Field MakeField(const EngineRow& row) {
  const EngineSetting setting = EngineSettingOf(row.name);
  Field field{.name = row.name, .group = row.group, .help = row.help, .ref = {}, .unit = row.unit};
  field.ref = [member = setting.member](Settings& settings) {
    return std::visit([&](auto pointer) -> FieldRef { return &(settings.engine.*pointer); },
                      member);
  };
  field.lowest = setting.lowest;
  field.highest = setting.highest;
  field.choices = setting.choices;
  field.is_switch = std::holds_alternative<bool EngineConfig::*>(setting.member);
  return field;
}

#define QUIRE_REF(member) [](Settings& s) -> FieldRef { return &s.member; }

std::vector<Field> ServerRows() {
  return {
      {"served-model-name", kModel, "name that requests use; empty: the directory's name",
       QUIRE_REF(server.served_model_name)},
      {"host", kListening, "address for gRPC; loopback only, since it is plaintext",
       QUIRE_REF(server.front.host)},
      {"port", kListening, "port for gRPC; 0: any free one", QUIRE_REF(server.front.port),
       FieldUnit::kNone, 0, kMaxPort},
      {"uds", kListening, "path of a Unix socket for gRPC, instead of host and port",
       QUIRE_REF(server.front.uds)},
      {"metrics-host", kListening, "address for metrics, health and the status page",
       QUIRE_REF(server.metrics_host)},
      {"metrics-port", kListening, "port for these; 0: any free one",
       QUIRE_REF(server.metrics_port), FieldUnit::kNone, 0, kMaxPort},
      {"reflection", kListening, "let clients ask for the services and their messages",
       QUIRE_REF(server.front.reflection), FieldUnit::kNone, 0, 0, "", true},
      {"max-request-bytes", kListening, "size of a request message; beyond, RESOURCE_EXHAUSTED",
       QUIRE_REF(server.front.max_request_bytes), FieldUnit::kBytes, 1024, double{1 << 30}},
      {"slow-reader-timeout", kListening, "a stream unread for so long is ended",
       QUIRE_REF(server.front.slow_reader_timeout_seconds), FieldUnit::kSeconds, 1, 86400},
      {"text-threads", kOperations, "threads for tokenizing; 0: a quarter of the cores",
       QUIRE_REF(server.front.text_threads), FieldUnit::kNone, 0, 256},
      {"shutdown-timeout", kOperations, "how long running requests may go on after SIGTERM",
       QUIRE_REF(server.shutdown_timeout_seconds), FieldUnit::kSeconds, 0, 86400},
      {"drain-delay", kOperations,
       "how long new requests are still taken after SIGTERM turned health off",
       QUIRE_REF(server.drain_delay_seconds), FieldUnit::kSeconds, 0, 600},
      {"hung-after", kOperations, "health turns off when work waits so long and no step ends",
       QUIRE_REF(server.hung_after_seconds), FieldUnit::kSeconds, 2, 86400},
      {"log-format", kOperations, "form of the lines on stderr", QUIRE_REF(server.log_format),
       FieldUnit::kNone, 0, 0, "text|json"},
      {"log-requests", kOperations, "log a line for each finished request, never its text",
       QUIRE_REF(server.front.log_requests), FieldUnit::kNone, 0, 0, "", true},
      {"log-level", kOperations, "least severity that is logged", QUIRE_REF(server.log_level),
       FieldUnit::kNone, 0, 0, "debug|info|warning|error"},
      {"dry-run", kOperations, "print configuration and memory plan as JSON, and exit",
       QUIRE_REF(dry_run), FieldUnit::kNone, 0, 0, "", true},
  };
}

#undef QUIRE_REF

std::vector<Field> AllRows() {
  std::vector<Field> rows;
  for (const EngineRow& row : kEngineRows) rows.push_back(MakeField(row));
  for (Field& field : ServerRows()) rows.push_back(std::move(field));
  const auto rank = [](std::string_view group) {
    constexpr std::string_view kOrder[] = {kModel,    kMemory,    kBatching,
                                           kSessions, kListening, kOperations};
    return std::find(std::begin(kOrder), std::end(kOrder), group) - std::begin(kOrder);
  };
  std::stable_sort(rows.begin(), rows.end(),
                   [&](const Field& a, const Field& b) { return rank(a.group) < rank(b.group); });
  return rows;
}

// What vLLM, SGLang, TGI, TensorRT-LLM, LMDeploy, xLLM and llama.cpp call the same setting, where
// the meaning is the same. Left out on purpose: --max-total-tokens, which means two different
// things.
constexpr std::pair<std::string_view, std::string_view> kAliases[] = {
    {"model-path", "model"},
    {"model-id", "model"},
    {"m", "model"},
    {"model-name", "served-model-name"},
    {"alias", "served-model-name"},
    {"tp", "tensor-parallel-size"},
    {"tp-size", "tensor-parallel-size"},
    {"num-shard", "tensor-parallel-size"},
    {"threads", "cpu-threads"},
    {"t", "cpu-threads"},
    {"page-size", "block-size"},
    {"cache-block-seq-len", "block-size"},
    {"num-gpu-blocks-override", "num-blocks-override"},
    {"max-cache-size", "kv-cache-memory-bytes"},
    {"mem-fraction-static", "gpu-memory-utilization"},
    {"cuda-graph-sizes", "cudagraph-capture-sizes"},
    {"cuda-graph-bs", "cudagraph-capture-sizes"},
    {"cuda-graphs", "cudagraph-capture-sizes"},
    {"cudagraph-capture-batch-sizes", "cudagraph-capture-sizes"},
    {"cuda-graph-batch-sizes", "cudagraph-capture-sizes"},
    {"context-length", "max-model-len"},
    {"max-seq-len", "max-model-len"},
    {"session-len", "max-model-len"},
    {"ctx-size", "max-model-len"},
    {"c", "max-model-len"},
    {"max-running-requests", "max-num-seqs"},
    {"max-batch-size", "max-num-seqs"},
    {"max-seqs-per-batch", "max-num-seqs"},
    {"parallel", "max-num-seqs"},
    {"np", "max-num-seqs"},
    {"chunked-prefill-size", "max-num-batched-tokens"},
    {"max-prefill-tokens", "max-num-batched-tokens"},
    {"max-batch-prefill-tokens", "max-num-batched-tokens"},
    {"max-prefill-token-num", "max-num-batched-tokens"},
    {"max-num-tokens", "max-num-batched-tokens"},
    {"max-tokens-per-batch", "max-num-batched-tokens"},
    {"max-queued-requests", "max-num-queued-reqs"},
    {"grpc-port", "port"},
    {"server-port", "port"},
    {"server-name", "host"},
    {"prometheus-port", "metrics-port"},
    {"graceful-termination-timeout", "shutdown-timeout"},
    {"watchdog-timeout", "hung-after"},
};

const Field* CanonicalField(std::string_view name) {
  for (const Field& field : Fields()) {
    if (field.name == name) return &field;
  }
  return nullptr;
}

size_t EditDistance(std::string_view a, std::string_view b) {
  std::vector<size_t> row(b.size() + 1);
  for (size_t j = 0; j <= b.size(); ++j) row[j] = j;
  for (size_t i = 1; i <= a.size(); ++i) {
    size_t diagonal = row[0];
    row[0] = i;
    for (size_t j = 1; j <= b.size(); ++j) {
      const size_t replaced = diagonal + (a[i - 1] == b[j - 1] ? 0 : 1);
      diagonal = row[j];
      row[j] = std::min({replaced, row[j] + 1, row[j - 1] + 1});
    }
  }
  return row[b.size()];
}

struct Suffix {
  std::string_view text;
  double factor;
};
constexpr Suffix kByteSuffixes[] = {
    {"KiB", 0x1p10}, {"MiB", 0x1p20}, {"GiB", 0x1p30}, {"TiB", 0x1p40}};
constexpr Suffix kGibibyteSuffixes[] = {{"MiB", 0x1p-10}, {"GiB", 1}, {"TiB", 0x1p10}};
constexpr Suffix kTimeSuffixes[] = {{"ms", 1e-3}, {"min", 60}, {"s", 1}, {"h", 3600}};

// Takes a known suffix off `text`; the factor it stands for.
double TakeSuffix(std::string_view& text, std::span<const Suffix> suffixes) {
  for (const Suffix& suffix : suffixes) {
    if (!text.ends_with(suffix.text)) continue;
    text.remove_suffix(suffix.text.size());
    while (text.ends_with(' ')) text.remove_suffix(1);
    return suffix.factor;
  }
  return 1;
}

// The number in `text`, its unit applied; NaN when it is none.
double ReadNumber(FieldUnit unit, std::string_view text) {
  double factor = 1;
  if (unit == FieldUnit::kBytes) factor = TakeSuffix(text, kByteSuffixes);
  if (unit == FieldUnit::kGibibytes) factor = TakeSuffix(text, kGibibyteSuffixes);
  if (unit == FieldUnit::kSeconds) factor = TakeSuffix(text, kTimeSuffixes);
  double number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  const bool whole_text = error == std::errc() && end == text.data() + text.size();
  return whole_text ? number * factor : std::numeric_limits<double>::quiet_NaN();
}

std::string NumberText(double number) {
  char text[32];
  std::snprintf(text, sizeof text, "%.15g", number);
  return text;
}

std::string BytesText(double bytes) {
  for (size_t i = std::size(kByteSuffixes); i-- > 0;) {
    const double units = bytes / kByteSuffixes[i].factor;
    if (units >= 1 && units == std::floor(units)) {
      return NumberText(units) + " " + std::string(kByteSuffixes[i].text);
    }
  }
  return NumberText(bytes);
}

absl::Status NotAccepted(const Field& field) {
  std::string sentence = "must be ";
  Settings settings;
  const bool whole = !std::holds_alternative<double*>(field.ref(settings));
  if (whole && field.unit == FieldUnit::kNone && field.highest > 0) sentence += "a whole number, ";
  sentence += AcceptedValues(field);
  if (field.unit == FieldUnit::kBytes) sentence += ", in bytes or with KiB, MiB, GiB, TiB";
  if (field.unit == FieldUnit::kGibibytes) sentence += ", or with MiB, GiB, TiB";
  if (field.unit == FieldUnit::kSeconds) sentence += ", in seconds or with ms, s, min, h";
  return absl::InvalidArgumentError(sentence);
}

absl::Status SetSwitch(const Field& field, const std::string& text, bool* target) {
  if (text != "true" && text != "false" && text != "1" && text != "0") return NotAccepted(field);
  *target = text == "true" || text == "1";
  return absl::OkStatus();
}

absl::Status SetText(const Field& field, const std::string& text, std::string* target) {
  std::string_view choices = field.choices;
  bool found = choices.empty();
  while (!choices.empty() && !found) {
    const size_t bar = std::min(choices.find('|'), choices.size());
    found = choices.substr(0, bar) == text;
    choices.remove_prefix(std::min(bar + 1, choices.size()));
  }
  if (!found) return NotAccepted(field);
  *target = text;
  return absl::OkStatus();
}

}  // namespace

std::span<const Field> Fields() {
  static const std::vector<Field> rows = AllRows();
  return rows;
}

FieldName FindField(const std::string& name) {
  std::string dashed = name;
  std::replace(dashed.begin(), dashed.end(), '_', '-');
  if (const Field* field = CanonicalField(dashed)) return {field, false};
  for (const auto& [alias, canonical] : kAliases) {
    if (alias == dashed) return {CanonicalField(canonical), true};
  }
  return {};
}

std::string NearestName(const std::string& name) {
  std::string dashed = name;
  std::replace(dashed.begin(), dashed.end(), '_', '-');
  std::string_view nearest;
  size_t fewest = std::numeric_limits<size_t>::max();
  const auto consider = [&](std::string_view candidate, std::string_view shown) {
    const size_t edits = EditDistance(dashed, candidate);
    if (edits >= fewest) return;
    fewest = edits;
    nearest = shown;
  };
  for (const Field& field : Fields()) consider(field.name, field.name);
  for (const auto& [alias, canonical] : kAliases) consider(alias, canonical);
  return std::string(nearest);
}

absl::Status SetField(const Field& field, const std::string& text, Settings& settings) {
  const FieldRef ref = field.ref(settings);
  if (const auto* word = std::get_if<std::string*>(&ref)) return SetText(field, text, *word);
  if (const auto* on = std::get_if<bool*>(&ref)) return SetSwitch(field, text, *on);
  const double number = ReadNumber(field.unit, text);
  if (!(number >= field.lowest && number <= field.highest)) return NotAccepted(field);
  if (const auto* real = std::get_if<double*>(&ref)) {
    **real = number;
    return absl::OkStatus();
  }
  if (number != std::floor(number)) return NotAccepted(field);
  if (const auto* narrow = std::get_if<int32_t*>(&ref)) {
    **narrow = static_cast<int32_t>(number);
  } else {
    *std::get<int64_t*>(ref) = static_cast<int64_t>(number);
  }
  return absl::OkStatus();
}

std::string FieldText(const Field& field, const Settings& settings) {
  Settings copy = settings;
  const FieldRef ref = field.ref(copy);
  if (const auto* word = std::get_if<std::string*>(&ref)) return **word;
  if (const auto* on = std::get_if<bool*>(&ref)) return **on ? "true" : "false";
  if (const auto* real = std::get_if<double*>(&ref)) return NumberText(**real);
  if (const auto* narrow = std::get_if<int32_t*>(&ref)) return std::to_string(**narrow);
  return std::to_string(*std::get<int64_t*>(ref));
}

std::string AcceptedValues(const Field& field) {
  if (field.is_switch) return "true or false";
  if (!field.choices.empty()) {
    std::string words = "one of ";
    for (const char c : field.choices) words += c == '|' ? std::string(", ") : std::string(1, c);
    return words;
  }
  Settings settings;
  const FieldRef ref = field.ref(settings);
  if (std::holds_alternative<std::string*>(ref)) return "";
  if (field.unit == FieldUnit::kBytes) {
    return BytesText(field.lowest) + " to " + BytesText(field.highest);
  }
  const std::string range = NumberText(field.lowest) + " to " + NumberText(field.highest);
  if (field.unit == FieldUnit::kGibibytes) return range + " GiB";
  return field.unit == FieldUnit::kSeconds ? range + " s" : range;
}

}  // namespace quire
