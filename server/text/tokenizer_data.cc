// Builds the tables of a tokenizer and checks that the parts of its file are consistent.
#include "server/text/tokenizer_data.h"

#include <algorithm>
#include <bitset>
#include <utility>

#include "absl/strings/str_cat.h"
#include "engine/base/status_macros.h"
#include "server/text/model/byte_pairs.h"
#include "server/text/model/char_pairs.h"
#include "server/text/model/unigram.h"
#include "server/text/unicode/byte_alphabet.h"

namespace quire {

absl::Status Tokenizer::Data::AddToken(const std::string& token, int32_t id) {
  if (static_cast<size_t>(id) >= written.size()) written.resize(static_cast<size_t>(id) + 1);
  if (!written[id].empty() && written[id] != token) {
    return absl::InvalidArgumentError(absl::StrCat("id ", id, " is given to two tokens"));
  }
  written[id] = token;
  return absl::OkStatus();
}

absl::Status Tokenizer::Data::BuildVocabulary(const ModelSpec& spec,
                                              const std::vector<AddedToken>& added) {
  for (const auto& [token, id] : spec.vocabulary) RETURN_IF_ERROR(AddToken(token, id));
  for (const AddedToken& token : added) RETURN_IF_ERROR(AddToken(token.content, token.id));
  for (size_t id = 0; id < written.size(); ++id) {
    if (written[id].empty()) continue;
    if (!id_of.emplace(written[id], static_cast<int32_t>(id)).second) {
      return absl::InvalidArgumentError(
          absl::StrCat("id ", id, " repeats the token of id ", id_of.at(written[id])));
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<std::vector<MergeTable::Merge>> Tokenizer::Data::ResolveMerges(
    const ModelSpec& spec) const {
  std::vector<MergeTable::Merge> merges;
  merges.reserve(spec.merges.size());
  for (size_t i = 0; i < spec.merges.size(); ++i) {
    const ModelSpec::Merge& merge = spec.merges[i];
    const auto left = id_of.find(merge.left), right = id_of.find(merge.right);
    const std::string whole = merge.left + merge.right;
    const auto result = id_of.find(whole);
    if (left == id_of.end() || right == id_of.end() || result == id_of.end()) {
      return absl::InvalidArgumentError(
          absl::StrCat("model.merges[", i, "]: a part or the result is not in the vocabulary"));
    }
    merges.push_back({left->second, right->second, result->second, merge.rank});
  }
  return merges;
}

absl::Status Tokenizer::Data::BuildBytePairs(const ModelSpec& spec) {
  // Uses only entries that are wholly in the byte alphabet: no text produces the others.
  std::vector<std::string_view> parts(written.size());
  bytes_.resize(written.size());
  std::bitset<256> bytes_with_token;
  for (const auto& [token, id] : spec.vocabulary) {
    auto bytes = BytesOfToken(token);
    if (!bytes.has_value()) continue;
    bytes_[id] = *std::move(bytes);
    parts[id] = bytes_[id];
    if (parts[id].size() == 1) bytes_with_token.set(static_cast<uint8_t>(parts[id][0]));
  }
  BytePairs::Options options = {.ignore_merges = spec.ignore_merges,
                                .fuse_unknown = spec.fuse_unknown};
  if (!bytes_with_token.all()) {
    if (spec.byte_fallback) {
      return absl::InvalidArgumentError(
          "model.byte_fallback: with ByteLevel it is not supported, unless each byte has a token");
    }
    ASSIGN_OR_RETURN(options.unknown, UnknownId(spec));
  }
  ASSIGN_OR_RETURN(std::vector<MergeTable::Merge> merges, ResolveMerges(spec));
  std::erase_if(merges, [&](const MergeTable::Merge& merge) {
    return parts[merge.left].empty() || parts[merge.right].empty();
  });
  model = std::make_unique<const BytePairs>(std::move(parts), merges, options);
  return absl::OkStatus();
}

absl::StatusOr<int32_t> Tokenizer::Data::UnknownId(const ModelSpec& spec) const {
  if (!spec.unknown.has_value()) return -1;
  for (const auto& [token, id] : spec.vocabulary) {
    if (token == *spec.unknown) return id;
  }
  return absl::InvalidArgumentError("model.unk_token: is not in the vocabulary");
}

absl::Status Tokenizer::Data::BuildCharPairs(const ModelSpec& spec) {
  CharPairs::Parts parts = {.fuse_unknown = spec.fuse_unknown,
                            .byte_fallback = spec.byte_fallback,
                            .ignore_merges = spec.ignore_merges};
  parts.tokens.resize(written.size());
  for (const auto& [token, id] : spec.vocabulary) parts.tokens[id] = written[id];
  ASSIGN_OR_RETURN(const int32_t unknown, UnknownId(spec));
  if (unknown >= 0) parts.unknown = unknown;
  ASSIGN_OR_RETURN(parts.merges, ResolveMerges(spec));
  ASSIGN_OR_RETURN(model, CharPairs::Make(std::move(parts)));
  return absl::OkStatus();
}

absl::Status Tokenizer::Data::BuildUnigram(const ModelSpec& spec) {
  if (post_processor.trims()) {
    return absl::InvalidArgumentError(
        "post_processor.trim_offsets: with a Unigram model it is not supported");
  }
  Unigram::Parts parts = {.byte_fallback = spec.byte_fallback,
                          .single_precision = spec.single_precision};
  for (size_t i = 0; i < spec.scores.size(); ++i) {
    parts.vocabulary.emplace_back(spec.vocabulary[i].first, spec.scores[i]);
  }
  if (spec.unknown.has_value()) {
    const auto at =
        std::ranges::find(spec.vocabulary, *spec.unknown, &std::pair<std::string, int32_t>::first);
    parts.unknown = static_cast<int32_t>(at - spec.vocabulary.begin());
  }
  ASSIGN_OR_RETURN(model, Unigram::Make(parts));
  return absl::OkStatus();
}

absl::Status Tokenizer::Data::BuildModel(const ModelSpec& spec) {
  const bool byte_level = pre_tokenizer.byte_level();
  if (spec.kind == ModelSpec::Kind::kBpe) {
    return byte_level ? BuildBytePairs(spec) : BuildCharPairs(spec);
  }
  if (byte_level) {
    return absl::InvalidArgumentError(
        "pre_tokenizer: ByteLevel with a Unigram model is not "
        "supported");
  }
  return BuildUnigram(spec);
}

absl::Status Tokenizer::Data::BuildAddedTokens(const std::vector<AddedToken>& added) {
  NormalizedText work;
  for (const AddedToken& token : added) {
    if (!token.normalized) {
      raw_tokens.Add(token, token.content);
      continue;
    }
    Passage content{token.content};
    RETURN_IF_ERROR(normalizer.Run(/*tracked=*/false, &content, &work));
    if (content.text.empty()) {
      return absl::InvalidArgumentError(
          absl::StrCat("added_tokens: nothing remains of id ", token.id, " when it is normalized"));
    }
    normalized_tokens.Add(token, std::string(content.text));
    normalized_contents_[token.id] = content.text;
  }
  return absl::OkStatus();
}

absl::Status Tokenizer::Data::CheckFrame() const {
  for (const auto* ids : {&post_processor.ids_before(), &post_processor.ids_after()}) {
    for (const int32_t id : *ids) {
      if (static_cast<size_t>(id) >= written.size() || written[id].empty()) {
        return absl::InvalidArgumentError(absl::StrCat("post_processor: no token has id ", id));
      }
    }
  }
  return absl::OkStatus();
}

absl::Status Tokenizer::Data::Build(const TokenizerFile& file) {
  const JsonNode root{file.parts, ""};
  std::vector<AddedToken> added;
  if (root.Has("added_tokens")) {
    ASSIGN_OR_RETURN(added, ReadAddedTokens(root.At("added_tokens")));
  }
  if (root.Has("normalizer")) {
    ASSIGN_OR_RETURN(normalizer, NormalizerChain::Read(root.At("normalizer")));
  }
  if (root.Has("pre_tokenizer")) {
    ASSIGN_OR_RETURN(pre_tokenizer, PreTokenizer::Read(root.At("pre_tokenizer")));
  }
  if (root.Has("post_processor")) {
    ASSIGN_OR_RETURN(post_processor, PostProcessor::Read(root.At("post_processor")));
  }
  RETURN_IF_ERROR(BuildVocabulary(file.model, added));
  RETURN_IF_ERROR(BuildModel(file.model));
  RETURN_IF_ERROR(BuildAddedTokens(added));
  for (const AddedToken& symbol : file.symbols) normalized_tokens.Add(symbol, symbol.content);
  RETURN_IF_ERROR(CheckFrame());
  std::vector<bool> special(written.size());
  for (const AddedToken& token : added) special[token.id] = token.special;
  std::vector<std::string> decoded = written;
  for (const auto& [id, content] : normalized_contents_) decoded[id] = content;
  ASSIGN_OR_RETURN(texts,
                   TokenTexts::Make(root.At("decoder"), std::move(decoded), std::move(special)));
  return absl::OkStatus();
}

}  // namespace quire
