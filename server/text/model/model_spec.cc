// Reads BPE and Unigram models key by key.
#include "server/text/model/model_spec.h"

#include "absl/strings/str_cat.h"
#include "engine/base/status_macros.h"

namespace quire {
namespace {

absl::StatusOr<ModelSpec::Merge> ReadMerge(const JsonNode& node) {
  ModelSpec::Merge merge = {};
  if (node.value.is_string()) {  // "left right": a space within a token is written otherwise
    const auto& text = node.value.get_ref<const std::string&>();
    const size_t space = text.find(' ');
    if (space == std::string::npos || text.find(' ', space + 1) != std::string::npos) {
      return Refuse(node, "is not two tokens");
    }
    merge.left = text.substr(0, space);
    merge.right = text.substr(space + 1);
  } else if (node.value.is_array() && node.value.size() == 2 && node.value[0].is_string() &&
             node.value[1].is_string()) {
    merge.left = node.value[0].get<std::string>();
    merge.right = node.value[1].get<std::string>();
  } else {
    return Refuse(node, "is not two tokens");
  }
  return merge;
}

absl::StatusOr<ModelSpec> ReadBpe(const JsonNode& node) {
  RETURN_IF_ERROR(CheckKeys(
      node, {"type", "dropout", "unk_token", "continuing_subword_prefix", "end_of_word_suffix",
             "fuse_unk", "byte_fallback", "ignore_merges", "vocab", "merges"}));
  if (node.Has("dropout") && node.value.at("dropout") != 0.0) return Refuse(node.At("dropout"));
  for (const char* key : {"continuing_subword_prefix", "end_of_word_suffix"}) {
    if (node.Has(key) && node.value.at(key) != "") return Refuse(node.At(key));
  }
  ModelSpec spec;
  if (node.Has("unk_token")) {
    ASSIGN_OR_RETURN(spec.unknown, ReadString(node, "unk_token"));
  }
  ASSIGN_OR_RETURN(spec.fuse_unknown, ReadBool(node, "fuse_unk", false));
  ASSIGN_OR_RETURN(spec.byte_fallback, ReadBool(node, "byte_fallback", false));
  ASSIGN_OR_RETURN(spec.ignore_merges, ReadBool(node, "ignore_merges", false));

  if (!node.Has("vocab") || !node.value.at("vocab").is_object()) {
    return Refuse(node, "'vocab' is missing or not an object");
  }
  for (const auto& [token, id] : node.value.at("vocab").items()) {
    const JsonNode entry{id, absl::StrCat(node.path, ".vocab[\"", token.substr(0, 80), "\"]")};
    ASSIGN_OR_RETURN(const int32_t checked, ReadId(entry));
    spec.vocabulary.emplace_back(token, checked);
  }
  ASSIGN_OR_RETURN(const JsonNode merges, ReadList(node, "merges"));
  spec.merges.reserve(merges.value.size());
  for (size_t i = 0; i < merges.value.size(); ++i) {
    ASSIGN_OR_RETURN(ModelSpec::Merge merge, ReadMerge(merges.At(i)));
    merge.rank = static_cast<uint32_t>(i);
    spec.merges.push_back(std::move(merge));
  }
  return spec;
}

absl::StatusOr<ModelSpec> ReadUnigram(const JsonNode& node) {
  RETURN_IF_ERROR(CheckKeys(node, {"type", "unk_id", "vocab", "byte_fallback"}));
  ModelSpec spec;
  spec.kind = ModelSpec::Kind::kUnigram;
  ASSIGN_OR_RETURN(spec.byte_fallback, ReadBool(node, "byte_fallback", false));
  ASSIGN_OR_RETURN(const JsonNode vocabulary, ReadList(node, "vocab"));
  for (size_t i = 0; i < vocabulary.value.size(); ++i) {
    const JsonNode entry = vocabulary.At(i);
    const bool is_pair = entry.value.is_array() && entry.value.size() == 2 &&
                         entry.value[0].is_string() && entry.value[1].is_number();
    if (!is_pair) return Refuse(entry, "is not a token and its score");
    spec.vocabulary.emplace_back(entry.value[0].get<std::string>(), static_cast<int32_t>(i));
    spec.scores.push_back(entry.value[1].get<double>());
  }
  if (node.Has("unk_id")) {
    ASSIGN_OR_RETURN(const int32_t id, ReadId(node.At("unk_id")));
    if (static_cast<size_t>(id) >= spec.vocabulary.size()) {
      return Refuse(node.At("unk_id"), absl::StrCat(id, " is not in the vocabulary"));
    }
    spec.unknown = spec.vocabulary[static_cast<size_t>(id)].first;
  }
  return spec;
}

}  // namespace

absl::StatusOr<ModelSpec> ReadModelSpec(const JsonNode& node) {
  if (!node.value.is_object()) return Refuse(node, "is not an object");
  // Older files of BPE models have no type.
  if (!node.Has("type") || node.value.at("type") == "BPE") return ReadBpe(node);
  if (node.value.at("type") == "Unigram") return ReadUnigram(node);
  return Refuse(node.At("type"));
}

}  // namespace quire
