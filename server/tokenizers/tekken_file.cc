// A tekken.json lists the bytes of tokens by rank; special tokens have the ids before them.
#include "server/tokenizers/tekken_file.h"

#include <unordered_map>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "engine/base/json.h"
#include "engine/base/status_macros.h"
#include "server/text/file/json_node.h"
#include "server/text/normalize/precompiled.h"
#include "server/text/unicode/byte_alphabet.h"

namespace quire {
namespace {

using nlohmann::json;

constexpr int32_t kMaxTokens = 4 << 20;
// The file need not list them, so that its size is no bound. Mistral's have 1,000.
constexpr int32_t kMaxSpecial = 1 << 16;

// The special tokens of files that do not list them.
constexpr const char* kSpecialTokens[] = {"<unk>",
                                          "<s>",
                                          "</s>",
                                          "[INST]",
                                          "[/INST]",
                                          "[AVAILABLE_TOOLS]",
                                          "[/AVAILABLE_TOOLS]",
                                          "[TOOL_RESULTS]",
                                          "[/TOOL_RESULTS]",
                                          "[TOOL_CALLS]",
                                          "[IMG]",
                                          "<pad>",
                                          "[IMG_BREAK]",
                                          "[IMG_END]",
                                          "[PREFIX]",
                                          "[MIDDLE]",
                                          "[SUFFIX]",
                                          "[SYSTEM_PROMPT]",
                                          "[/SYSTEM_PROMPT]",
                                          "[TOOL_CONTENT]"};

struct Tekken {
  std::string pattern;
  int32_t num_special = 0;
  std::vector<std::string> tokens;   // bytes, by rank
  std::vector<std::string> special;  // by id
};

std::string Written(std::string_view bytes) {
  std::string out;
  for (const char byte : bytes) AppendWritten(static_cast<uint8_t>(byte), &out);
  return out;
}

absl::Status ReadTokens(const JsonNode& list, int32_t count, Tekken* out) {
  if (static_cast<size_t>(count) > list.value.size()) {
    return Refuse(list, absl::StrCat("has ", list.value.size(), " tokens, not ", count));
  }
  for (int32_t rank = 0; rank < count; ++rank) {
    const JsonNode node = list.At(static_cast<size_t>(rank));
    if (!node.value.is_object()) return Refuse(node, "is not an object");
    ASSIGN_OR_RETURN(const int32_t given, ReadCount(node, "rank", kMaxTokens));
    if (given != rank) return Refuse(node.At("rank"), "is not in order");
    ASSIGN_OR_RETURN(const std::string encoded, ReadString(node, "token_bytes"));
    absl::StatusOr<std::string> bytes = DecodeBase64(encoded);
    if (!bytes.ok() || bytes->empty()) {
      return Refuse(node.At("token_bytes"), "is empty or not base64");
    }
    out->tokens.push_back(*std::move(bytes));
  }
  return absl::OkStatus();
}

absl::Status ReadSpecial(const JsonNode& root, Tekken* out) {
  for (int32_t id = 0; id < out->num_special; ++id) {
    out->special.push_back(absl::StrCat("<SPECIAL_", id, ">"));
  }
  if (!root.Has("special_tokens")) {
    for (size_t id = 0; id < std::size(kSpecialTokens) && id < out->special.size(); ++id) {
      out->special[id] = kSpecialTokens[id];
    }
    return absl::OkStatus();
  }
  ASSIGN_OR_RETURN(const JsonNode list, ReadList(root, "special_tokens"));
  for (size_t i = 0; i < list.value.size(); ++i) {
    const JsonNode node = list.At(i);
    if (!node.value.is_object()) return Refuse(node, "is not an object");
    ASSIGN_OR_RETURN(const int32_t id, ReadCount(node, "rank", out->num_special - 1));
    ASSIGN_OR_RETURN(out->special[static_cast<size_t>(id)], ReadString(node, "token_str"));
  }
  return absl::OkStatus();
}

absl::StatusOr<Tekken> ReadTekken(const JsonNode& root) {
  if (!root.value.is_object()) return Refuse(root, "is not an object");
  if (!root.Has("config")) return Refuse(root, "'config' is missing");
  const JsonNode config = root.At("config");
  if (!config.value.is_object()) return Refuse(config, "is not an object");
  Tekken out;
  ASSIGN_OR_RETURN(out.pattern, ReadString(config, "pattern"));
  ASSIGN_OR_RETURN(const int32_t size, ReadCount(config, "default_vocab_size", kMaxTokens));
  ASSIGN_OR_RETURN(out.num_special, ReadCount(config, "default_num_special_tokens", kMaxSpecial));
  if (out.num_special < 2 || out.num_special > size) {
    return Refuse(config, "default_num_special_tokens is not in [2, default_vocab_size]");
  }
  ASSIGN_OR_RETURN(const JsonNode vocabulary, ReadList(root, "vocab"));
  RETURN_IF_ERROR(ReadTokens(vocabulary, size - out.num_special, &out));
  RETURN_IF_ERROR(ReadSpecial(root, &out));
  return out;
}

// Of two neighbours the pair merges first whose bytes together have the lower rank; so all merges
// to one token share its rank. A piece that is a token needs no merges.
ModelSpec ModelOf(const Tekken& tekken) {
  ModelSpec spec;
  spec.ignore_merges = true;
  std::unordered_map<std::string_view, uint32_t> ranks;
  for (uint32_t rank = 0; rank < tekken.tokens.size(); ++rank) {
    ranks.emplace(tekken.tokens[rank], rank);
    spec.vocabulary.emplace_back(Written(tekken.tokens[rank]),
                                 tekken.num_special + static_cast<int32_t>(rank));
  }
  for (const auto& [bytes, rank] : ranks) {
    for (size_t at = 1; at < bytes.size(); ++at) {
      const std::string_view left = bytes.substr(0, at), right = bytes.substr(at);
      if (!ranks.contains(left) || !ranks.contains(right)) continue;
      spec.merges.push_back({Written(left), Written(right), rank});
    }
  }
  return spec;
}

json PartsOf(const Tekken& tekken) {
  json added = json::array();
  for (size_t id = 0; id < tekken.special.size(); ++id) {
    added.push_back(
        {{"id", id}, {"content", tekken.special[id]}, {"normalized", false}, {"special", true}});
  }
  const std::string& bos = tekken.special[1];
  const json split = {{"type", "Split"},
                      {"pattern", {{"Regex", tekken.pattern}}},
                      {"behavior", "Isolated"},
                      {"invert", false}};
  const json bytes = {{"type", "ByteLevel"},
                      {"add_prefix_space", false},
                      {"trim_offsets", false},
                      {"use_regex", false}};
  return {{"added_tokens", std::move(added)},
          {"pre_tokenizer", {{"type", "Sequence"}, {"pretokenizers", {split, bytes}}}},
          {"post_processor",
           {{"type", "TemplateProcessing"},
            {"single",
             {{{"SpecialToken", {{"id", bos}, {"type_id", 0}}}},
              {{"Sequence", {{"id", "A"}, {"type_id", 0}}}}}},
            {"special_tokens", {{bos, {{"id", bos}, {"ids", {1}}, {"tokens", {bos}}}}}}}},
          {"decoder", {{"type", "ByteLevel"}}}};
}

}  // namespace

absl::StatusOr<TokenizerFile> ReadTekkenFile(const std::string& path) {
  ASSIGN_OR_RETURN(const json root, ReadJsonFile(path));
  const absl::StatusOr<Tekken> tekken = ReadTekken({root, ""});
  if (!tekken.ok()) {
    return absl::InvalidArgumentError(absl::StrCat(path, ": ", tekken.status().message()));
  }
  return TokenizerFile{.model = ModelOf(*tekken), .parts = PartsOf(*tekken)};
}

}  // namespace quire
