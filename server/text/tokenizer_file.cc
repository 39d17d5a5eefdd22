// Reads tokenizer.json key by key and refuses keys and values that are not listed here.
#include "server/text/tokenizer_file.h"

#include <algorithm>
#include <initializer_list>
#include <string_view>

#include "absl/strings/str_cat.h"
#include "engine/base/json.h"
#include "engine/base/status_macros.h"
#include "server/text/scanner.h"

namespace quire {
namespace {

using nlohmann::json;

// Ids index arrays, so this limit keeps a file from making them larger than any real vocabulary.
constexpr int64_t kMaxId = 4 << 20;
constexpr size_t kMaxAddedTokenBytes = 1024;

// A value and where it is in the file.
struct Node {
  const json& value;
  std::string path;

  Node At(const char* key) const { return {value.at(key), absl::StrCat(path, ".", key)}; }
  Node At(size_t index) const { return {value.at(index), absl::StrCat(path, "[", index, "]")}; }
  bool Has(const char* key) const { return value.contains(key) && !value.at(key).is_null(); }
};

absl::Status Refuse(const Node& node, const std::string& reason) {
  return absl::InvalidArgumentError(absl::StrCat(node.path, ": ", reason));
}
absl::Status Refuse(const Node& node) {
  std::string shown = node.value.is_primitive() ? node.value.dump(-1, ' ', /*ensure_ascii=*/true)
                                                : node.value.type_name();
  if (shown.size() > 80) shown.resize(80);
  return Refuse(node, absl::StrCat(shown, " is not supported"));
}

absl::Status CheckKeys(const Node& node, std::initializer_list<const char*> known) {
  if (!node.value.is_object()) return Refuse(node, "is not an object");
  for (const auto& [key, unused] : node.value.items()) {
    if (std::ranges::find(known, std::string_view(key)) == known.end()) {
      return Refuse(node, absl::StrCat("key '", key.substr(0, 80), "' is not supported"));
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<bool> ReadBool(const Node& node, const char* key, bool otherwise) {
  if (!node.Has(key)) return otherwise;
  const Node member = node.At(key);
  if (!member.value.is_boolean()) return Refuse(member, "is not true or false");
  return member.value.get<bool>();
}

absl::StatusOr<std::string> ReadString(const Node& node, const char* key) {
  if (!node.Has(key) || !node.value.at(key).is_string()) {
    return Refuse(node, absl::StrCat("'", key, "' is missing or not a string"));
  }
  return node.value.at(key).get<std::string>();
}

absl::StatusOr<int32_t> ReadId(const Node& node) {
  if (!node.value.is_number_integer()) return Refuse(node, "is not an id");
  const int64_t id = node.value.is_number_unsigned() && node.value.get<uint64_t>() > INT64_MAX
                         ? -1
                         : node.value.get<int64_t>();
  if (id < 0 || id > kMaxId) return Refuse(node, absl::StrCat("id is not in [0, ", kMaxId, "]"));
  return static_cast<int32_t>(id);
}

// The members of a Sequence node, or the node itself.
absl::StatusOr<std::vector<Node>> Flatten(const Node& node, const char* list_key) {
  ASSIGN_OR_RETURN(const std::string type, ReadString(node, "type"));
  if (type != "Sequence") return std::vector<Node>{node};
  RETURN_IF_ERROR(CheckKeys(node, {"type", list_key}));
  if (!node.Has(list_key) || !node.value.at(list_key).is_array()) {
    return Refuse(node, absl::StrCat("'", list_key, "' is missing or not a list"));
  }
  std::vector<Node> out;
  const Node list = node.At(list_key);
  for (size_t i = 0; i < list.value.size(); ++i) {
    const Node member = list.At(i);
    if (!member.value.is_object()) return Refuse(member, "is not an object");
    ASSIGN_OR_RETURN(std::vector<Node> inner, Flatten(member, list_key));
    for (Node& one : inner) out.push_back({one.value, std::move(one.path)});
  }
  return out;
}

absl::Status ReadMerge(const Node& node, TokenizerFile* file) {
  std::string left, right;
  if (node.value.is_string()) {  // "left right": a space within a token is U+0120
    const auto& text = node.value.get_ref<const std::string&>();
    const size_t space = text.find(' ');
    if (space == std::string::npos || text.find(' ', space + 1) != std::string::npos) {
      return Refuse(node, "is not two tokens");
    }
    left = text.substr(0, space);
    right = text.substr(space + 1);
  } else if (node.value.is_array() && node.value.size() == 2 && node.value[0].is_string() &&
             node.value[1].is_string()) {
    left = node.value[0].get<std::string>();
    right = node.value[1].get<std::string>();
  } else {
    return Refuse(node, "is not two tokens");
  }
  file->merges.emplace_back(std::move(left), std::move(right));
  return absl::OkStatus();
}

absl::Status ReadModel(const Node& node, TokenizerFile* file) {
  RETURN_IF_ERROR(CheckKeys(
      node, {"type", "dropout", "unk_token", "continuing_subword_prefix", "end_of_word_suffix",
             "fuse_unk", "byte_fallback", "ignore_merges", "vocab", "merges"}));
  // Older files have no type.
  if (node.Has("type") && node.value.at("type") != "BPE") return Refuse(node.At("type"));
  if (node.Has("dropout") && node.value.at("dropout") != 0.0) return Refuse(node.At("dropout"));
  for (const char* key : {"continuing_subword_prefix", "end_of_word_suffix"}) {
    if (node.Has(key) && node.value.at(key) != "") return Refuse(node.At(key));
  }
  ASSIGN_OR_RETURN(const bool byte_fallback, ReadBool(node, "byte_fallback", false));
  if (byte_fallback) return Refuse(node.At("byte_fallback"));
  ASSIGN_OR_RETURN(file->ignore_merges, ReadBool(node, "ignore_merges", false));
  // unk_token and fuse_unk have no effect, because every byte must have a token.

  if (!node.Has("vocab") || !node.value.at("vocab").is_object()) {
    return Refuse(node, "'vocab' is missing or not an object");
  }
  for (const auto& [token, id] : node.value.at("vocab").items()) {
    const Node entry{id, absl::StrCat(node.path, ".vocab[\"", token.substr(0, 80), "\"]")};
    ASSIGN_OR_RETURN(const int32_t checked, ReadId(entry));
    file->vocabulary.emplace_back(token, checked);
  }
  if (!node.Has("merges") || !node.value.at("merges").is_array()) {
    return Refuse(node, "'merges' is missing or not a list");
  }
  const Node merges = node.At("merges");
  file->merges.reserve(merges.value.size());
  for (size_t i = 0; i < merges.value.size(); ++i) {
    RETURN_IF_ERROR(ReadMerge(merges.At(i), file));
  }
  return absl::OkStatus();
}

absl::Status ReadAddedTokens(const Node& list, TokenizerFile* file) {
  if (!list.value.is_array()) return Refuse(list, "is not a list");
  for (size_t i = 0; i < list.value.size(); ++i) {
    const Node node = list.At(i);
    RETURN_IF_ERROR(CheckKeys(
        node, {"id", "content", "single_word", "lstrip", "rstrip", "normalized", "special"}));
    AddedToken token;
    if (!node.Has("id")) return Refuse(node, "'id' is missing");
    ASSIGN_OR_RETURN(token.id, ReadId(node.At("id")));
    ASSIGN_OR_RETURN(token.content, ReadString(node, "content"));
    ASSIGN_OR_RETURN(const bool single_word, ReadBool(node, "single_word", false));
    if (single_word) return Refuse(node.At("single_word"));
    ASSIGN_OR_RETURN(token.lstrip, ReadBool(node, "lstrip", false));
    ASSIGN_OR_RETURN(token.rstrip, ReadBool(node, "rstrip", false));
    ASSIGN_OR_RETURN(token.special, ReadBool(node, "special", false));
    ASSIGN_OR_RETURN(token.normalized, ReadBool(node, "normalized", !token.special));
    if (token.content.empty() || token.content.size() > kMaxAddedTokenBytes) {
      return Refuse(node.At("content"),
                    absl::StrCat("is empty or longer than ", kMaxAddedTokenBytes, " bytes"));
    }
    file->added_tokens.push_back(std::move(token));
  }
  return absl::OkStatus();
}

absl::Status ReadNormalizer(const Node& node, TokenizerFile* file) {
  ASSIGN_OR_RETURN(const std::vector<Node> steps, Flatten(node, "normalizers"));
  for (const Node& step : steps) {
    ASSIGN_OR_RETURN(const std::string type, ReadString(step, "type"));
    if (type != "NFC") return Refuse(step.At("type"));
    RETURN_IF_ERROR(CheckKeys(step, {"type"}));
    file->nfc = true;
  }
  return absl::OkStatus();
}

absl::Status ReadSplit(const Node& node, TokenizerFile* file) {
  RETURN_IF_ERROR(CheckKeys(node, {"type", "pattern", "behavior", "invert"}));
  if (!node.Has("pattern")) return Refuse(node, "'pattern' is missing");
  const Node pattern = node.At("pattern");
  RETURN_IF_ERROR(CheckKeys(pattern, {"Regex"}));
  SplitStep step;
  ASSIGN_OR_RETURN(step.pattern, ReadString(pattern, "Regex"));
  ASSIGN_OR_RETURN(const std::string behavior, ReadString(node, "behavior"));
  ASSIGN_OR_RETURN(const bool invert, ReadBool(node, "invert", false));
  // The known patterns leave no text between matches, so removing it has no effect.
  const bool isolated = behavior == "Isolated" && !invert;
  const bool inverted = behavior == "Removed" && invert && MakeScanner(step.pattern) != nullptr;
  if (!isolated && !inverted) {
    return Refuse(
        node.At("behavior"),
        absl::StrCat(behavior, " with invert ", invert ? "true" : "false", " is not supported"));
  }
  file->split_steps.push_back(std::move(step));
  return absl::OkStatus();
}

absl::Status ReadByteLevel(const Node& node, TokenizerFile* file) {
  RETURN_IF_ERROR(CheckKeys(node, {"type", "add_prefix_space", "trim_offsets", "use_regex"}));
  ASSIGN_OR_RETURN(file->add_prefix_space, ReadBool(node, "add_prefix_space", true));
  if (file->add_prefix_space && !file->split_steps.empty()) {
    return Refuse(node.At("add_prefix_space"), "true after another splitter is not supported");
  }
  ASSIGN_OR_RETURN(const bool use_regex, ReadBool(node, "use_regex", true));
  if (use_regex) file->split_steps.push_back({SplitStep::Kind::kPattern, kGpt2Pattern});
  return absl::OkStatus();
}

absl::Status ReadPreTokenizer(const Node& node, TokenizerFile* file) {
  ASSIGN_OR_RETURN(const std::vector<Node> steps, Flatten(node, "pretokenizers"));
  bool byte_level = false;
  for (const Node& step : steps) {
    ASSIGN_OR_RETURN(const std::string type, ReadString(step, "type"));
    if (byte_level) return Refuse(step, "a step after ByteLevel is not supported");
    if (type == "ByteLevel") {
      byte_level = true;
      RETURN_IF_ERROR(ReadByteLevel(step, file));
    } else if (type == "Split") {
      RETURN_IF_ERROR(ReadSplit(step, file));
    } else if (type == "Digits") {
      RETURN_IF_ERROR(CheckKeys(step, {"type", "individual_digits"}));
      ASSIGN_OR_RETURN(const bool individual, ReadBool(step, "individual_digits", false));
      file->split_steps.push_back({SplitStep::Kind::kDigits, "", individual});
    } else {
      return Refuse(step.At("type"));
    }
  }
  if (!byte_level)
    return Refuse(node, "only byte-level tokenizers are supported: no ByteLevel here");
  return absl::OkStatus();
}

absl::Status AppendSpecial(const Node& node, const Node& piece, std::vector<int32_t>* ids) {
  ASSIGN_OR_RETURN(const std::string name, ReadString(piece, "id"));
  if (!node.Has("special_tokens") || !node.value.at("special_tokens").contains(name) ||
      !node.value.at("special_tokens").at(name).contains("ids")) {
    return Refuse(piece, absl::StrCat("special_tokens has no ids for '", name.substr(0, 80), "'"));
  }
  const Node list{node.value.at("special_tokens").at(name).at("ids"),
                  absl::StrCat(node.path, ".special_tokens[\"", name.substr(0, 80), "\"].ids")};
  if (!list.value.is_array()) return Refuse(list, "is not a list");
  for (size_t i = 0; i < list.value.size(); ++i) {
    ASSIGN_OR_RETURN(const int32_t id, ReadId(list.At(i)));
    ids->push_back(id);
  }
  return absl::OkStatus();
}

absl::Status ReadTemplate(const Node& node, TokenizerFile* file) {
  RETURN_IF_ERROR(CheckKeys(node, {"type", "single", "pair", "special_tokens"}));
  if (!node.Has("single") || !node.value.at("single").is_array()) {
    return Refuse(node, "'single' is missing or not a list");
  }
  const Node single = node.At("single");
  int sequences = 0;
  for (size_t i = 0; i < single.value.size(); ++i) {
    const Node piece = single.At(i);
    if (piece.value.is_object() && piece.Has("Sequence")) {
      ++sequences;
    } else if (piece.value.is_object() && piece.Has("SpecialToken")) {
      RETURN_IF_ERROR(AppendSpecial(node, piece.At("SpecialToken"),
                                    sequences == 0 ? &file->ids_before : &file->ids_after));
    } else {
      return Refuse(piece);
    }
  }
  if (sequences != 1) return Refuse(single, "does not hold the text exactly once");
  return absl::OkStatus();
}

absl::Status ReadPostProcessor(const Node& node, TokenizerFile* file) {
  ASSIGN_OR_RETURN(const std::vector<Node> steps, Flatten(node, "processors"));
  bool template_seen = false;
  for (const Node& step : steps) {
    ASSIGN_OR_RETURN(const std::string type, ReadString(step, "type"));
    if (type == "ByteLevel") {
      RETURN_IF_ERROR(CheckKeys(step, {"type", "add_prefix_space", "trim_offsets", "use_regex"}));
      ASSIGN_OR_RETURN(const bool trim, ReadBool(step, "trim_offsets", true));
      if (trim && file->trim_offsets) return Refuse(step, "a second trim_offsets is not supported");
      if (!trim) continue;
      file->trim_offsets = true;
      ASSIGN_OR_RETURN(file->trim_keeps_prefix_space, ReadBool(step, "add_prefix_space", true));
    } else if (type == "TemplateProcessing") {
      if (template_seen) return Refuse(step, "a second TemplateProcessing is not supported");
      template_seen = true;
      RETURN_IF_ERROR(ReadTemplate(step, file));
    } else {
      return Refuse(step.At("type"));
    }
  }
  return absl::OkStatus();
}

absl::Status CheckDecoder(const Node& node) {
  ASSIGN_OR_RETURN(const std::vector<Node> steps, Flatten(node, "decoders"));
  bool byte_level = false;
  for (const Node& step : steps) {
    ASSIGN_OR_RETURN(const std::string type, ReadString(step, "type"));
    // ByteLevel joins the tokens to one text, which a later Fuse does not change.
    const bool known = (type == "ByteLevel" && !byte_level) || (type == "Fuse" && byte_level);
    if (!known) return Refuse(step.At("type"));
    byte_level = true;
  }
  if (!byte_level) return Refuse(node, "no ByteLevel here");
  return absl::OkStatus();
}

absl::Status ReadRoot(const Node& root, TokenizerFile* file) {
  RETURN_IF_ERROR(CheckKeys(root, {"version", "truncation", "padding", "added_tokens", "normalizer",
                                   "pre_tokenizer", "post_processor", "decoder", "model"}));
  for (const char* key : {"truncation", "padding"}) {
    if (root.Has(key)) return Refuse(root.At(key), "is not supported: set it to null");
  }
  for (const char* key : {"model", "pre_tokenizer", "decoder"}) {
    if (!root.Has(key)) return Refuse(root, absl::StrCat("'", key, "' is missing or null"));
  }
  RETURN_IF_ERROR(ReadModel(root.At("model"), file));
  RETURN_IF_ERROR(ReadPreTokenizer(root.At("pre_tokenizer"), file));
  RETURN_IF_ERROR(CheckDecoder(root.At("decoder")));
  if (root.Has("normalizer")) RETURN_IF_ERROR(ReadNormalizer(root.At("normalizer"), file));
  if (root.Has("post_processor"))
    RETURN_IF_ERROR(ReadPostProcessor(root.At("post_processor"), file));
  if (root.Has("added_tokens")) RETURN_IF_ERROR(ReadAddedTokens(root.At("added_tokens"), file));
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<TokenizerFile> ReadTokenizerFile(const std::string& path) {
  ASSIGN_OR_RETURN(const json root, ReadJsonFile(path));
  TokenizerFile file;
  // Paths in messages start with the file's own: "/models/x/tokenizer.json: model.dropout: ...".
  absl::Status status = ReadRoot({root, ""}, &file);
  if (!status.ok()) {
    std::string_view message(status.message().data(), status.message().size());
    if (message.starts_with(": ")) message.remove_prefix(2);
    if (message.starts_with(".")) message.remove_prefix(1);
    return absl::InvalidArgumentError(
        absl::StrCat(path, ": ", absl::string_view(message.data(), message.size())));
  }
  return file;
}

}  // namespace quire
