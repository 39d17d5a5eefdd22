// Reads the post-processors of a tokenizer.
#include "server/text/post_processor.h"

#include <algorithm>
#include <string>

#include "absl/strings/str_cat.h"
#include "engine/base/status_macros.h"
#include "server/text/unicode/unicode.h"

namespace quire {
namespace {

// White space, or how a byte-level token writes a space.
bool IsTrimmed(char32_t c) { return c == 0x120 || ClassOf(CharClasses(), c) == CharClass::kSpace; }

absl::Status AppendSpecial(const JsonNode& node, const JsonNode& piece, std::vector<int32_t>* ids) {
  if (!piece.value.is_object()) return Refuse(piece, "is not an object");
  ASSIGN_OR_RETURN(const std::string name, ReadString(piece, "id"));
  const std::string shown = name.substr(0, 80);
  if (!node.Has("special_tokens") || !node.value.at("special_tokens").is_object() ||
      !node.value.at("special_tokens").contains(name) ||
      !node.value.at("special_tokens").at(name).contains("ids")) {
    return Refuse(piece, absl::StrCat("special_tokens has no ids for '", shown, "'"));
  }
  const JsonNode list{node.value.at("special_tokens").at(name).at("ids"),
                      absl::StrCat(node.path, ".special_tokens[\"", shown, "\"].ids")};
  if (!list.value.is_array()) return Refuse(list, "is not a list");
  for (size_t i = 0; i < list.value.size(); ++i) {
    ASSIGN_OR_RETURN(const int32_t id, ReadId(list.At(i)));
    ids->push_back(id);
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status PostProcessor::ReadTemplate(const JsonNode& node) {
  RETURN_IF_ERROR(CheckKeys(node, {"type", "single", "pair", "special_tokens"}));
  ASSIGN_OR_RETURN(const JsonNode single, ReadList(node, "single"));
  int sequences = 0;
  for (size_t i = 0; i < single.value.size(); ++i) {
    const JsonNode piece = single.At(i);
    if (piece.value.is_object() && piece.Has("Sequence")) {
      ++sequences;
    } else if (piece.value.is_object() && piece.Has("SpecialToken")) {
      RETURN_IF_ERROR(AppendSpecial(node, piece.At("SpecialToken"),
                                    sequences == 0 ? &ids_before_ : &ids_after_));
    } else {
      return Refuse(piece);
    }
  }
  if (sequences != 1) return Refuse(single, "does not hold the text exactly once");
  return absl::OkStatus();
}

// `cls` before the text and `sep` after it: ["<s>", 0].
absl::Status PostProcessor::ReadPairOfTokens(const JsonNode& node) {
  for (const char* key : {"cls", "sep"}) {
    ASSIGN_OR_RETURN(const JsonNode pair, ReadList(node, key));
    if (pair.value.size() != 2) return Refuse(pair, "is not a token and its id");
    ASSIGN_OR_RETURN(const int32_t id, ReadId(pair.At(1)));
    (key[0] == 'c' ? ids_before_ : ids_after_).push_back(id);
  }
  return absl::OkStatus();
}

absl::Status PostProcessor::SetTrim(const JsonNode& node) {
  ASSIGN_OR_RETURN(const bool trim, ReadBool(node, "trim_offsets", true));
  if (!trim) return absl::OkStatus();
  if (trims_) return Refuse(node, "a second trim_offsets is not supported");
  trims_ = true;
  ASSIGN_OR_RETURN(keeps_prefix_space_, ReadBool(node, "add_prefix_space", true));
  return absl::OkStatus();
}

absl::Status PostProcessor::ReadStep(const JsonNode& node) {
  ASSIGN_OR_RETURN(const std::string type, ReadString(node, "type"));
  if (type == "ByteLevel") {
    RETURN_IF_ERROR(CheckKeys(node, {"type", "add_prefix_space", "trim_offsets", "use_regex"}));
    return SetTrim(node);
  }
  if (type != "TemplateProcessing" && type != "RobertaProcessing" && type != "BertProcessing") {
    return Refuse(node.At("type"));
  }
  if (adds_tokens_) return Refuse(node, "a second step that adds tokens is not supported");
  adds_tokens_ = true;
  if (type == "TemplateProcessing") return ReadTemplate(node);
  if (type == "RobertaProcessing") {
    RETURN_IF_ERROR(CheckKeys(node, {"type", "sep", "cls", "trim_offsets", "add_prefix_space"}));
    RETURN_IF_ERROR(SetTrim(node));
  } else {
    RETURN_IF_ERROR(CheckKeys(node, {"type", "sep", "cls"}));
  }
  return ReadPairOfTokens(node);
}

absl::StatusOr<PostProcessor> PostProcessor::Read(const JsonNode& node) {
  ASSIGN_OR_RETURN(const std::vector<JsonNode> steps, FlattenSequence(node, "processors"));
  PostProcessor made;
  for (const JsonNode& step : steps) RETURN_IF_ERROR(made.ReadStep(step));
  return made;
}

// Counts code points, like the `tokenizers` package, so it also trims a space that the
// pre-tokenizer inserted.
void PostProcessor::Trim(std::string_view source, std::string_view token, bool is_first,
                         TokenOffset* offset) const {
  size_t leading = 0, trailing = 0;
  for (size_t at = 0; at < token.size() && IsTrimmed(DecodeUtf8(token.data() + at).value);
       ++leading) {
    at = CodePointEnd(token, at);
  }
  for (size_t at = token.size(); at > 0; ++trailing) {
    at = CodePointBegin(token, at - 1);
    if (!IsTrimmed(DecodeUtf8(token.data() + at).value)) break;
  }
  is_first = is_first || offset->begin == 0;
  if (is_first && leading == 1 && keeps_prefix_space_) leading = 0;
  size_t begin = static_cast<size_t>(offset->begin), end = static_cast<size_t>(offset->end);
  for (; leading > 0 && begin < end; --leading) begin = CodePointEnd(source, begin);
  offset->begin = static_cast<int32_t>(begin);
  for (; trailing > 0; --trailing) {
    if (end == 0) return;
    end = CodePointBegin(source, end - 1);
  }
  offset->end = static_cast<int32_t>(std::max(end, begin));
}

}  // namespace quire
