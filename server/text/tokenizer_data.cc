// Builds the tables of a tokenizer and checks that the parts of its file are consistent.
#include "server/text/tokenizer_data.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "engine/base/status_macros.h"
#include "server/text/byte_alphabet.h"
#include "server/text/nfc.h"
#include "server/text/regex_splitter.h"
#include "server/text/scanner.h"

namespace quire {

absl::Status Tokenizer::Data::AddToken(const std::string& token, int32_t id) {
  if (static_cast<size_t>(id) >= written.size()) written.resize(id + 1);
  if (!written[id].empty() && written[id] != token) {
    return absl::InvalidArgumentError(absl::StrCat("id ", id, " is given to two tokens"));
  }
  written[id] = token;
  return absl::OkStatus();
}

absl::Status Tokenizer::Data::BuildVocabulary(const TokenizerFile& file) {
  for (const auto& [token, id] : file.vocabulary) RETURN_IF_ERROR(AddToken(token, id));
  for (const AddedToken& token : file.added_tokens) {
    RETURN_IF_ERROR(AddToken(token.content, token.id));
  }
  bytes.resize(written.size());
  special.resize(written.size());
  for (size_t id = 0; id < written.size(); ++id) {
    if (written[id].empty()) continue;
    if (!id_of.emplace(written[id], static_cast<int32_t>(id)).second) {
      return absl::InvalidArgumentError(
          absl::StrCat("id ", id, " repeats the token of id ", id_of.at(written[id])));
    }
    bytes[id] = BytesOfToken(written[id]).value_or(written[id]);
  }
  for (const AddedToken& token : file.added_tokens) special[token.id] = token.special;
  return absl::OkStatus();
}

absl::StatusOr<BytePairs::Merge> Tokenizer::Data::ResolveMerge(const TokenizerFile& file,
                                                               size_t index) const {
  const auto& [left, right] = file.merges[index];
  const auto left_id = id_of.find(left), right_id = id_of.find(right);
  const std::string whole = left + right;
  const auto whole_id = id_of.find(whole);
  if (left_id == id_of.end() || right_id == id_of.end() || whole_id == id_of.end()) {
    return absl::InvalidArgumentError(
        absl::StrCat("model.merges[", index, "]: a part or the result is not in the vocabulary"));
  }
  return BytePairs::Merge{left_id->second, right_id->second, whole_id->second};
}

absl::Status Tokenizer::Data::BuildBytePairs(const TokenizerFile& file) {
  // Uses only entries that are wholly in the byte alphabet: no text produces the others.
  std::vector<std::string_view> parts(written.size());
  bool byte_seen[256] = {};
  for (const auto& [token, id] : file.vocabulary) {
    if (!BytesOfToken(token).has_value()) continue;
    parts[id] = bytes[id];
    if (bytes[id].size() == 1) byte_seen[static_cast<uint8_t>(bytes[id][0])] = true;
  }
  const auto missing = std::ranges::find(byte_seen, false);
  if (missing != std::end(byte_seen)) {
    return absl::InvalidArgumentError(absl::StrCat("model.vocab: no token for byte ",
                                                   missing - byte_seen,
                                                   "; text holding it could not be encoded"));
  }
  std::vector<BytePairs::Merge> merges;
  merges.reserve(file.merges.size());
  for (size_t i = 0; i < file.merges.size(); ++i) {
    ASSIGN_OR_RETURN(const BytePairs::Merge merge, ResolveMerge(file, i));
    if (parts[merge.left].empty() || parts[merge.right].empty()) continue;
    merges.push_back(merge);
  }
  byte_pairs = std::make_unique<const BytePairs>(std::move(parts), merges, file.ignore_merges);
  return absl::OkStatus();
}

absl::Status Tokenizer::Data::BuildAddedTokens(const TokenizerFile& file) {
  for (const AddedToken& token : file.added_tokens) {
    if (!token.normalized) {
      raw_tokens.Add(token, token.content);
      continue;
    }
    std::string content = token.content;
    if (file.nfc) NfcNormalizer::Get().Normalize(token.content, &content, nullptr);
    normalized_tokens.Add(token, content);
  }
  for (const std::vector<int32_t>* ids : {&file.ids_before, &file.ids_after}) {
    for (const int32_t id : *ids) {
      if (static_cast<size_t>(id) >= written.size() || written[id].empty()) {
        return absl::InvalidArgumentError(absl::StrCat("post_processor: no token has id ", id));
      }
    }
  }
  return absl::OkStatus();
}

absl::Status Tokenizer::Data::BuildSplitters(const TokenizerFile& file) {
  for (const SplitStep& step : file.split_steps) {
    if (step.kind == SplitStep::Kind::kDigits) {
      splitters.push_back(MakeDigitSplitter(step.individual_digits));
      continue;
    }
    std::unique_ptr<const PieceSplitter> splitter = MakeScanner(step.pattern);
    if (splitter == nullptr) {
      auto made = MakeRegexSplitter(step.pattern);
      if (!made.ok()) {
        return absl::InvalidArgumentError(absl::StrCat("pre_tokenizer: ", made.status().message()));
      }
      splitter = std::move(made).value();
    }
    splitters.push_back(std::move(splitter));
  }
  return absl::OkStatus();
}

absl::Status Tokenizer::Data::Build(const TokenizerFile& file) {
  RETURN_IF_ERROR(BuildVocabulary(file));
  RETURN_IF_ERROR(BuildBytePairs(file));
  RETURN_IF_ERROR(BuildAddedTokens(file));
  RETURN_IF_ERROR(BuildSplitters(file));
  nfc = file.nfc;
  add_prefix_space = file.add_prefix_space;
  trim_offsets = file.trim_offsets;
  trim_keeps_prefix_space = file.trim_keeps_prefix_space;
  ids_before = file.ids_before;
  ids_after = file.ids_after;
  return absl::OkStatus();
}

}  // namespace quire
