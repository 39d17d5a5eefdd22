// Reads the pre-tokenizers of a tokenizer and runs them.
#include "server/text/pieces/pre_tokenizer.h"

#include <string>
#include <utility>

#include "engine/base/status_macros.h"
#include "server/text/pattern/pattern.h"
#include "server/text/pattern/stop_mark.h"
#include "server/text/pieces/pattern_splitter.h"
#include "server/text/pieces/scanner.h"

namespace quire {

void PreTokenizer::Add(std::unique_ptr<const PieceSplitter> splitter) {
  // After ByteLevel, the text is written in the byte alphabet.
  steps_.push_back(byte_level_ ? MakeAlphabetSplitter(std::move(splitter)) : std::move(splitter));
}

absl::Status PreTokenizer::ReadByteLevel(const JsonNode& node) {
  RETURN_IF_ERROR(CheckKeys(node, {"type", "add_prefix_space", "trim_offsets", "use_regex"}));
  if (byte_level_) return Refuse(node, "a second ByteLevel is not supported");
  ASSIGN_OR_RETURN(const bool prefix, ReadBool(node, "add_prefix_space", true));
  ASSIGN_OR_RETURN(const bool use_regex, ReadBool(node, "use_regex", true));
  if (prefix) steps_.push_back(SpaceRewriter(" ", PrependScheme::kAlways));
  if (use_regex) Add(MakeScanner(kGpt2Pattern));
  byte_level_ = true;
  return absl::OkStatus();
}

absl::Status PreTokenizer::ReadMetaspace(const JsonNode& node) {
  RETURN_IF_ERROR(CheckKeys(
      node, {"type", "replacement", "str_rep", "add_prefix_space", "prepend_scheme", "split"}));
  if (byte_level_) return Refuse(node, "after ByteLevel it is not supported");
  ASSIGN_OR_RETURN(std::string space, ReadChar(node, "replacement"));
  ASSIGN_OR_RETURN(const PrependScheme scheme, ReadPrependScheme(node));
  ASSIGN_OR_RETURN(const bool split, ReadBool(node, "split", true));
  steps_.push_back(SpaceRewriter(space, scheme));
  if (split) {
    Add(MakePatternSplitter(MakeLiteralPattern(std::move(space)), SplitBehavior::kMergedWithNext));
  }
  return absl::OkStatus();
}

absl::Status PreTokenizer::ReadSplit(const JsonNode& node) {
  RETURN_IF_ERROR(CheckKeys(node, {"type", "pattern", "behavior", "invert"}));
  ASSIGN_OR_RETURN(const SplitBehavior behavior, ReadSplitBehavior(node));
  ASSIGN_OR_RETURN(const bool invert, ReadBool(node, "invert", false));
  if (node.Has("pattern") && node.value["pattern"].contains("Regex") &&
      node.value["pattern"]["Regex"].is_string()) {
    const bool drops_rest = behavior == SplitBehavior::kRemoved && invert;
    auto scanner = MakeScanner(node.value["pattern"]["Regex"].get<std::string>(), drops_rest);
    if (scanner != nullptr && (behavior == SplitBehavior::kIsolated || drops_rest)) {
      Add(std::move(scanner));
      return absl::OkStatus();
    }
  }
  ASSIGN_OR_RETURN(auto pattern, ReadPattern(node));
  Add(MakePatternSplitter(std::move(pattern), behavior, invert));
  return absl::OkStatus();
}

absl::Status PreTokenizer::ReadStep(const JsonNode& node) {
  ASSIGN_OR_RETURN(const std::string type, ReadString(node, "type"));
  if (type == "ByteLevel") return ReadByteLevel(node);
  if (type == "Metaspace") return ReadMetaspace(node);
  if (type == "Split") return ReadSplit(node);
  if (type == "Digits") {
    RETURN_IF_ERROR(CheckKeys(node, {"type", "individual_digits"}));
    ASSIGN_OR_RETURN(const bool individual, ReadBool(node, "individual_digits", false));
    Add(MakeDigitSplitter(individual));
  } else if (type == "Punctuation") {
    RETURN_IF_ERROR(CheckKeys(node, {"type", "behavior"}));
    SplitBehavior behavior = SplitBehavior::kIsolated;
    if (node.Has("behavior")) {
      ASSIGN_OR_RETURN(behavior, ReadSplitBehavior(node));
    }
    Add(MakePatternSplitter(MakeCharPattern(CharSet::kPunctuation), behavior));
  } else if (type == "Whitespace") {
    RETURN_IF_ERROR(CheckKeys(node, {"type"}));
    Add(MakePatternSplitter(MakeWordPattern(), SplitBehavior::kRemoved, /*invert=*/true));
  } else if (type == "WhitespaceSplit") {
    RETURN_IF_ERROR(CheckKeys(node, {"type"}));
    Add(MakePatternSplitter(MakeCharPattern(CharSet::kSpace), SplitBehavior::kRemoved));
  } else if (type == "CharDelimiterSplit") {
    RETURN_IF_ERROR(CheckKeys(node, {"type", "delimiter"}));
    ASSIGN_OR_RETURN(std::string delimiter, ReadChar(node, "delimiter"));
    Add(MakePatternSplitter(MakeLiteralPattern(std::move(delimiter)), SplitBehavior::kRemoved));
  } else {
    return Refuse(node.At("type"));
  }
  return absl::OkStatus();
}

absl::StatusOr<PreTokenizer> PreTokenizer::Read(const JsonNode& node) {
  ASSIGN_OR_RETURN(const std::vector<JsonNode> steps, FlattenSequence(node, "pretokenizers"));
  PreTokenizer made;
  for (const JsonNode& step : steps) RETURN_IF_ERROR(made.ReadStep(step));
  return made;
}

bool PreTokenizer::needs_origin() const {
  for (const Step& step : steps_) {
    const auto* rewriter = std::get_if<SpaceRewriter>(&step);
    if (rewriter != nullptr && rewriter->scheme() == PrependScheme::kFirst) return true;
  }
  return false;
}

absl::Status PreTokenizer::Run(bool tracked, Passage* passage, Work* work) const {
  work->pieces.assign(1, {0, static_cast<uint32_t>(passage->text.size())});
  bool whole = true;  // one piece, the whole text
  for (const Step& step : steps_) {
    RETURN_IF_ERROR(StopMark::CheckThread());
    if (const auto* splitter = std::get_if<std::unique_ptr<const PieceSplitter>>(&step)) {
      work->next.clear();
      RETURN_IF_ERROR((*splitter)->Split(passage->text, work->pieces, &work->next));
      work->pieces.swap(work->next);
      whole = false;
      continue;
    }
    const auto& rewriter = std::get<SpaceRewriter>(step);
    if (whole && !rewriter.MayChange(passage->text)) continue;
    // `passage` may show `rewritten`, so the new text comes into the other buffer.
    rewriter.Rewrite(*passage, work->pieces, tracked, &work->spare);
    std::swap(work->rewritten, work->spare);
    work->pieces = work->rewritten.pieces;
    *passage = {work->rewritten.text, passage->base, work->rewritten.origin};
  }
  return absl::OkStatus();
}

}  // namespace quire
