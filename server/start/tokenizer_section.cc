// Facts of the tokenizer's file and of the tokenizer built from it.
#include "server/start/tokenizer_section.h"

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "server/sampling/logit_processors.h"
#include "server/tokenizers/tokenizer_directory.h"

namespace quire {
namespace {

// Words, digits, an accent, two scripts and a character beyond the basic plane.
constexpr char kSample[] =
    "The 3 foxes, d\xc3\xa9j\xc3\xa0 vu: \xe6\x97\xa5\xe6\x9c\xac \xf0\x9f\xa6\x8a!";
constexpr size_t kMostShown = 240;  // bytes of a text

// "Sequence(NFC, Replace)": the type of a part of the file, and of its own parts.
std::string KindText(const nlohmann::json& parts, const char* key) {
  if (!parts.is_object()) return "none";
  const auto part = parts.find(key);
  if (part == parts.end() || !part->is_object() || !part->contains("type")) return "none";
  const auto text = [](const nlohmann::json& type) {
    return type.is_string() ? type.get<std::string>() : type.dump();
  };
  std::vector<std::string> inner;
  for (const auto& value : *part) {
    if (!value.is_array()) continue;
    for (const nlohmann::json& item : value) {
      if (item.is_object() && item.contains("type")) inner.push_back(text(item["type"]));
    }
  }
  const std::string type = text(part->at("type"));
  return inner.empty() ? type : absl::StrCat(type, "(", absl::StrJoin(inner, ", "), ")");
}

// Ids with their texts.
std::string TokensText(const Tokenizer& tokenizer, const std::vector<int32_t>& ids) {
  std::vector<std::string> tokens;
  for (const int32_t id : ids) {
    const std::string text(tokenizer.TokenBytes(id, /*skip_special=*/false));
    tokens.push_back(absl::StrCat(id, " ", QuotedText(text, 40)));
  }
  return tokens.empty() ? "none" : absl::StrJoin(tokens, ", ");
}

void AddFile(const TokenizerSource& source, CheckSection& section) {
  const ModelSpec& spec = source.file.model;
  section.Add("file", source.path);
  section.Add("kind",
              absl::StrCat(spec.kind == ModelSpec::Kind::kBpe ? "BPE" : "Unigram",
                           spec.byte_fallback ? " with byte fallback" : "", ", ",
                           CountText(static_cast<int64_t>(spec.vocabulary.size())), " tokens, ",
                           CountText(static_cast<int64_t>(spec.merges.size())), " merges"));
  for (const char* part : {"normalizer", "pre_tokenizer", "post_processor", "decoder"}) {
    section.Add(part, KindText(source.file.parts, part));
  }
}

// Holds the ids against the model's.
void AddIds(const Tokenizer& tokenizer, const ModelConfig& model, CheckSection& section,
            CheckReport& report) {
  section.Add("model's ids", absl::StrCat("0 to ", model.vocab_size - 1));
  if (tokenizer.size() > model.vocab_size) {
    report.warnings.push_back(absl::StrCat("the tokenizer has ids up to ", tokenizer.size() - 1,
                                           ", the model up to ", model.vocab_size - 1,
                                           ": text with the others is refused"));
  }
  std::vector<int32_t> bos;
  if (model.bos_token_id.has_value()) bos.push_back(*model.bos_token_id);
  section.Add("BOS", TokensText(tokenizer, bos));
  section.Add("EOS", TokensText(tokenizer, model.eos_token_ids));
  if (model.eos_token_ids.empty()) {
    report.warnings.emplace_back(
        "neither generation_config.json nor config.json has \"eos_token_id\": replies end at a "
        "stop "
        "rule or at their most tokens only");
  }
}

void AddRoundTrip(const Tokenizer& tokenizer, CheckSection& section, CheckReport& report) {
  std::vector<int32_t> frame, ids;
  absl::Status status = tokenizer.Encode("", /*add_special=*/true, /*parse_special=*/false, &frame);
  status.Update(tokenizer.Encode(kSample, /*add_special=*/false, /*parse_special=*/false, &ids));
  if (!status.ok()) {
    section.Add("a text and back", "refused, see the end");
    report.warnings.push_back(
        absl::StrCat("the tokenizer cannot encode a short text: ", status.message()));
    return;
  }
  section.Add("added to a text", TokensText(tokenizer, frame));
  const std::string back = tokenizer.Decode(ids, /*skip_special=*/false);
  const std::string result = back == kSample ? "the same" : QuotedText(back, kMostShown);
  section.Add("a text and back",
              absl::StrCat(QuotedText(kSample, kMostShown), ": ", ids.size(), " tokens, ", result));
}

// The sets that requests may name, with `tokenizer` for their texts.
void AddLogitProcessors(const CheckedModel& model, const Tokenizer* tokenizer,
                        CheckSection& section, CheckReport& report) {
  const std::string& path = model.settings.server.logit_processors;
  if (path.empty() || !model.config.has_value()) return;
  const absl::StatusOr<LogitProcessors> loaded =
      LogitProcessors::Load(path, tokenizer, model.config->vocab_size);
  section.Add("logit processors",
              loaded.ok() ? absl::StrJoin(loaded->names(), ", ") : path + ": refused, see the end");
  report.Refuse(StartStage::kText, ExitCode::kBadConfig, loaded.status());
}

}  // namespace

CheckSection DescribeTokenizer(const CheckedModel& model, CheckReport& report) {
  CheckSection section{.title = "Tokenizer"};
  const std::string directory = TextDirectory(model.settings);
  if (directory.empty()) {
    section.Add("file", "none: --skip-tokenizer-init serves token ids only");
    AddLogitProcessors(model, nullptr, section, report);
    return section;
  }
  const absl::StatusOr<TokenizerSource> source = ReadTokenizerSource(directory);
  if (source.ok()) AddFile(*source, section);
  const absl::StatusOr<std::unique_ptr<const Tokenizer>> built =
      source.ok() ? Tokenizer::Make(source->file, source->path) : source.status();
  if (!built.ok()) {
    section.Add("tokenizer", "refused, see the end");
    report.Refuse(StartStage::kText, ExitCode::kModel, built.status());
    return section;
  }
  const Tokenizer& tokenizer = **built;
  int64_t special = 0;
  for (int32_t id = 0; id < tokenizer.size(); ++id) special += tokenizer.IsSpecial(id) ? 1 : 0;
  section.Add("ids",
              absl::StrCat("0 to ", tokenizer.size() - 1, ", ", special, " of them special"));
  if (model.config.has_value()) AddIds(tokenizer, *model.config, section, report);
  AddRoundTrip(tokenizer, section, report);
  AddLogitProcessors(model, &tokenizer, section, report);
  return section;
}

}  // namespace quire
