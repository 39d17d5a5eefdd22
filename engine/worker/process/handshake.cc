// The fields of each message, and their framing.
#include "engine/worker/process/handshake.h"

#include <sys/socket.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <limits>
#include <utility>

#include "absl/strings/escaping.h"
#include "engine/base/json.h"
#include "engine/base/status_macros.h"
#include "engine/model/config/config_reader.h"
#include "kernels/device_limits.h"

namespace quire {
namespace {

using Json = nlohmann::json;

constexpr size_t kLengthBytes = 4;
constexpr size_t kMaxParts = 64;     // of memory, phases
constexpr size_t kMaxGraphs = 4096;  // one per batch size
constexpr size_t kMaxWorkerText = 4096;
constexpr int32_t kMaxInt = std::numeric_limits<int32_t>::max();
constexpr int64_t kMaxLong = std::numeric_limits<int64_t>::max();

std::string Dump(const Json& json) {
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

DType DTypeOf(ConfigReader& reader, const char* key) {
  const std::string name = reader.String(key, "");
  for (const DType dtype : kAllDTypes) {
    if (name == Name(dtype)) return dtype;
  }
  reader.Refuse(key, "float32, bfloat16, float16");
  return DType::kF32;
}

// The type of the KV cache, which may also be 8-bit.
DType KvDTypeOf(ConfigReader& reader, const char* key) {
  if (reader.String(key, "") == Name(DType::kE4M3)) return DType::kE4M3;
  return DTypeOf(reader, key);
}

int32_t Int32(ConfigReader& reader, const char* key) {
  return static_cast<int32_t>(reader.Int(key, 0, kMaxInt));
}

Json SpecJson(const WorkerSpec& spec) {
  const ModelOptions& model = spec.model_options;
  const KvLayout& kv = spec.kv_layout;
  return {{"model_dir", spec.model_dir},
          {"quantization", spec.quantization},
          {"rank", spec.tp.rank},
          {"ranks", spec.tp.size},
          {"weight_dtype", Name(model.weight_dtype)},
          {"activation_dtype", Name(model.activation_dtype)},
          {"max_tokens", model.max_tokens},
          {"max_logit_rows", model.max_logit_rows},
          {"dummy_weights", model.dummy_weights},
          {"weights_in_place", model.weights_in_place},
          {"load_threads", model.load_threads},
          {"width_multiple", model.width_multiple},
          {"num_layers", kv.num_layers},
          {"num_kv_heads", kv.num_kv_heads},
          {"head_dim", kv.head_dim},
          {"block_size", kv.block_size},
          {"kv_dtype", Name(kv.dtype)},
          {"num_blocks", spec.num_blocks},
          {"num_pages", spec.num_pages},
          {"kv_checksum", spec.kv_checksum},
          {"max_num_seqs", spec.worker.max_num_seqs},
          {"max_num_batched_tokens", spec.worker.max_num_batched_tokens},
          {"step_guesses", spec.worker.step_guesses},
          {"max_model_len", spec.worker.max_model_len},
          {"vocab_size", spec.worker.vocab_size},
          {"hidden_size", spec.worker.hidden_size},
          {"steps_in_flight", spec.worker.steps_in_flight},
          {"late_masks", spec.worker.late_masks},
          {"graph_sizes", spec.worker.graph_sizes}};
}

WorkerSpec ReadSpec(ConfigReader& reader) {
  WorkerSpec spec;
  spec.model_dir = reader.String("model_dir", "");
  spec.quantization = reader.String("quantization", "");
  spec.tp.size = static_cast<int32_t>(reader.Int("ranks", 1, kMaxInt));
  spec.tp.rank = static_cast<int32_t>(reader.Int("rank", 0, spec.tp.size - 1));
  spec.worker.max_num_seqs = Int32(reader, "max_num_seqs");
  spec.worker.max_num_batched_tokens = Int32(reader, "max_num_batched_tokens");
  spec.worker.step_guesses = static_cast<int32_t>(reader.Int("step_guesses", 0, kMaxInt));
  spec.worker.max_model_len = Int32(reader, "max_model_len");
  spec.worker.vocab_size = Int32(reader, "vocab_size");
  spec.worker.hidden_size = Int32(reader, "hidden_size");
  spec.worker.steps_in_flight = static_cast<int32_t>(reader.Int("steps_in_flight", 1, 8));
  spec.worker.late_masks = reader.Bool("late_masks", false);
  for (const int64_t size : reader.IntList("graph_sizes", 1, kMaxInt)) {
    spec.worker.graph_sizes.push_back(static_cast<int32_t>(size));
  }
  spec.model_options.weight_dtype = DTypeOf(reader, "weight_dtype");
  spec.model_options.activation_dtype = DTypeOf(reader, "activation_dtype");
  spec.model_options.max_tokens = Int32(reader, "max_tokens");
  spec.model_options.max_logit_rows = Int32(reader, "max_logit_rows");
  spec.model_options.max_model_len = spec.worker.max_model_len;
  spec.model_options.dummy_weights = reader.Bool("dummy_weights", false);
  spec.model_options.weights_in_place = reader.Bool("weights_in_place", false);
  spec.model_options.load_threads = Int32(reader, "load_threads");
  spec.model_options.width_multiple =
      static_cast<int32_t>(reader.Int("width_multiple", 1, kMaxInt));
  spec.kv_layout = {.num_layers = Int32(reader, "num_layers"),
                    .num_kv_heads = Int32(reader, "num_kv_heads"),
                    .head_dim = Int32(reader, "head_dim"),
                    .block_size = Int32(reader, "block_size"),
                    .dtype = KvDTypeOf(reader, "kv_dtype")};
  spec.model_options.eight_bit_kv = spec.kv_layout.dtype == DType::kE4M3;
  spec.num_blocks = Int32(reader, "num_blocks");
  spec.num_pages = Int32(reader, "num_pages");
  spec.kv_checksum = reader.Bool("kv_checksum", false);
  return spec;
}

Json MessageJson(const DeviceFacts& facts) {
  return {{"device",
           {{"kind", facts.kind},
            {"name", facts.name},
            {"total_bytes", facts.total_bytes},
            {"free_bytes", facts.free_bytes},
            {"backend_bytes", facts.backend_bytes},
            {"uuid", facts.uuid}}}};
}

// Bytes travel as hexadecimal digits.
Json MessageJson(const WorkerShare& share) {
  return {{"share", {{"bytes", absl::BytesToHexString(share.bytes)}}}};
}

// Refuses text of other characters than lower-case digits in pairs.
std::string ReadHex(ConfigReader& reader, const char* key, const std::string& text) {
  const bool digits = text.find_first_not_of("0123456789abcdef") == std::string::npos;
  if (!digits || text.size() % 2 != 0) {
    reader.Refuse(key, "hexadecimal digits");
    return "";
  }
  return absl::HexStringToBytes(text);
}

Json MessageJson(const WorkerReport& report) {
  Json memory = Json::array(), seconds = Json::array(), graphs = Json::array();
  for (const auto& [part, bytes] : report.memory) {
    memory.push_back({{"part", part}, {"bytes", bytes}});
  }
  for (const auto& [phase, value] : report.seconds) {
    seconds.push_back({{"phase", phase}, {"seconds", value}});
  }
  for (const WorkerReport::Graph& graph : report.graphs) {
    graphs.push_back({{"size", graph.size},
                      {"nodes", graph.nodes},
                      {"capture_ms", graph.capture_ms},
                      {"bytes", graph.bytes}});
  }
  return {{"ready",
           {{"description", report.description},
            {"memory", std::move(memory)},
            {"seconds", std::move(seconds)},
            {"graphs", std::move(graphs)},
            {"late_masks", report.late_masks}}}};
}

Json MessageJson(const WorkerFailure& failure) {
  return {{"error",
           {{"code", static_cast<int>(failure.status.code())},
            {"message", std::string(failure.status.message())}}}};
}

// A short text of the worker's.
std::string Text(ConfigReader& reader, const char* key) {
  return reader.String(key, "").substr(0, kMaxWorkerText);
}

// Calls `read` with a reader of each object of the list at `key`.
template <typename Read>
void ForEach(ConfigReader& reader, const char* key, size_t most, Read read) {
  const Json& list = reader.At(key);
  if (!list.is_array() || list.size() > most) return reader.Refuse(key, "a short list");
  for (const Json& item : list) {
    if (!item.is_object()) return reader.Refuse(key, "a list of objects");
    ConfigReader inner(item, reader.where() + ": " + key);
    read(inner);
    reader.Adopt(inner.status());
  }
}

DeviceFacts ReadFacts(ConfigReader& reader) {
  DeviceFacts facts{.kind = Text(reader, "kind"), .name = Text(reader, "name")};
  facts.total_bytes = reader.Int("total_bytes", 0, kMaxLong);
  facts.free_bytes = reader.Int("free_bytes", 0, facts.total_bytes);
  facts.backend_bytes = reader.Int("backend_bytes", 0, kMaxLong);
  facts.uuid = Text(reader, "uuid");
  return facts;
}

WorkerReport ReadReport(ConfigReader& reader) {
  WorkerReport report{.description = Text(reader, "description")};
  report.late_masks = reader.Bool("late_masks", false);
  ForEach(reader, "memory", kMaxParts, [&](ConfigReader& part) {
    report.memory.emplace_back(Text(part, "part"), part.Int("bytes", 0, kMaxLong));
  });
  ForEach(reader, "seconds", kMaxParts, [&](ConfigReader& phase) {
    report.seconds.emplace_back(Text(phase, "phase"), phase.Number("seconds", 0, 1e9));
  });
  ForEach(reader, "graphs", kMaxGraphs, [&](ConfigReader& graph) {
    report.graphs.push_back({.size = Int32(graph, "size"),
                             .nodes = Int32(graph, "nodes"),
                             .capture_ms = graph.Number("capture_ms", 0, 1e9),
                             .bytes = graph.Int("bytes", 0, kMaxLong)});
  });
  return report;
}

WorkerFailure ReadFailure(ConfigReader& reader) {
  const auto code = static_cast<absl::StatusCode>(reader.Int("code", 1, 16));
  return {absl::Status(code, Text(reader, "message"))};
}

}  // namespace

StepMemory::Shape StepShapeOf(const WorkerSpec& spec) {
  return {.ranks = spec.tp.size,
          .depth = spec.worker.steps_in_flight,
          .bounds = {.max_rows = spec.worker.max_num_seqs,
                     .max_draws = spec.worker.max_draws(),
                     .max_tokens = spec.worker.max_num_batched_tokens,
                     .num_blocks = spec.num_blocks,
                     .vocab_size = spec.worker.vocab_size,
                     .hidden_size = spec.worker.hidden_size},
          .late_masks = spec.worker.late_masks,
          .num_pages = spec.num_pages,
          .block_bytes = spec.kv_layout.block_bytes()};
}

std::string EncodeOrder(const WorkerOrder& order) {
  return Dump({{"start", order.start},
               {"device", order.device},
               {"cpu_threads", order.cpu_threads},
               {"spin_ns", order.spin_ns},
               {"local_rank", order.local_rank},
               {"host", order.host},
               {"spec", SpecJson(order.spec)}});
}

absl::StatusOr<WorkerOrder> DecodeOrder(const std::string& text) {
  ASSIGN_OR_RETURN(const Json json, ParseJson(text, "the server's order"));
  if (!json.is_object() || !json.contains("spec") || !json["spec"].is_object()) {
    return absl::InvalidArgumentError("the server's order has no spec");
  }
  ConfigReader reader(json, "the server's order");
  WorkerOrder order{.start = reader.Bool("start", false), .device = reader.String("device", "")};
  order.cpu_threads = Int32(reader, "cpu_threads");
  order.spin_ns = reader.Int("spin_ns", 0, 1'000'000'000);
  order.local_rank = Int32(reader, "local_rank");
  order.host = reader.String("host", "");
  ConfigReader spec(json["spec"], "the server's order: spec");
  order.spec = ReadSpec(spec);
  reader.Adopt(spec.status());
  RETURN_IF_ERROR(reader.status());
  return order;
}

std::string EncodeMessage(const WorkerMessage& word) {
  return std::visit([](const auto& said) { return Dump(MessageJson(said)); }, word);
}

absl::StatusOr<WorkerMessage> DecodeMessage(const std::string& text) {
  ASSIGN_OR_RETURN(const Json json, ParseJson(text, "the worker's message"));
  const bool one_object = json.is_object() && json.size() == 1 && json.begin()->is_object();
  if (!one_object) return absl::InvalidArgumentError("the worker's message is not one object");
  const std::string kind = json.begin().key();
  ConfigReader reader(*json.begin(), "the worker's message: " + kind);
  std::optional<WorkerMessage> word;
  if (kind == "device") word = ReadFacts(reader);
  if (kind == "share") word = WorkerShare{ReadHex(reader, "bytes", reader.String("bytes", ""))};
  if (kind == "ready") word = ReadReport(reader);
  if (kind == "error") word = ReadFailure(reader);
  if (!word) return absl::InvalidArgumentError("the worker's message is of no known kind");
  RETURN_IF_ERROR(reader.status());
  return *std::move(word);
}

std::string EncodeShares(const std::vector<std::string>& shares) {
  Json list = Json::array();
  for (const std::string& bytes : shares) list.push_back(absl::BytesToHexString(bytes));
  return Dump({{"shared", std::move(list)}});
}

absl::StatusOr<std::vector<std::string>> DecodeShares(const std::string& text) {
  ASSIGN_OR_RETURN(const Json json, ParseJson(text, "the server's answer"));
  if (!json.is_object()) return absl::InvalidArgumentError("the server's answer is not one object");
  ConfigReader reader(json, "the server's answer");
  std::vector<std::string> shares;
  const Json& list = reader.At("shared");
  if (!list.is_array()) reader.Refuse("shared", "a list");
  for (const Json& item : list.is_array() ? list : Json::array()) {
    if (!item.is_string()) reader.Refuse("shared", "a list of strings");
    shares.push_back(item.is_string() ? ReadHex(reader, "shared", item) : "");
  }
  RETURN_IF_ERROR(reader.status());
  return shares;
}

absl::Status SendMessage(int socket, const std::string& text) {
  std::string bytes;
  for (size_t i = 0; i < kLengthBytes; ++i) {
    bytes += static_cast<char>(static_cast<uint32_t>(text.size()) >> (8 * i));
  }
  bytes += text;
  std::string_view left = bytes;
  while (!left.empty()) {
    const ssize_t sent = send(socket, left.data(), left.size(), MSG_NOSIGNAL);
    if (sent < 0 && errno == EINTR) continue;
    if (sent < 0) {
      return absl::UnavailableError(std::string("the other side is gone: ") + std::strerror(errno));
    }
    left.remove_prefix(static_cast<size_t>(sent));
  }
  return absl::OkStatus();
}

absl::Status MessageReader::ReadFrom(int socket) {
  std::array<char, 4096> piece;
  ssize_t got = 0;
  do {
    got = recv(socket, piece.data(), piece.size(), 0);
  } while (got < 0 && errno == EINTR);
  if (got <= 0) return absl::UnavailableError("the other side is gone");
  bytes_.append(piece.data(), static_cast<size_t>(got));
  if (Length() <= kMaxBytes) return absl::OkStatus();
  return absl::InvalidArgumentError("a message of " + std::to_string(Length()) + " bytes");
}

size_t MessageReader::Length() const {
  size_t length = 0;
  for (size_t i = 0; i < kLengthBytes && bytes_.size() >= kLengthBytes; ++i) {
    length |= size_t{static_cast<unsigned char>(bytes_[i])} << (8 * i);
  }
  return length;
}

std::optional<std::string> MessageReader::Next() {
  const size_t whole = kLengthBytes + Length();
  if (bytes_.size() < whole) return std::nullopt;
  std::string message = bytes_.substr(kLengthBytes, whole - kLengthBytes);
  bytes_.erase(0, whole);
  return message;
}

absl::StatusOr<std::string> AwaitMessage(int socket, MessageReader& reader) {
  for (;;) {
    if (std::optional<std::string> message = reader.Next()) return *std::move(message);
    RETURN_IF_ERROR(reader.ReadFrom(socket));
  }
}

}  // namespace quire
