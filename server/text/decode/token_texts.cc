// Reads a decoder: steps on tokens, then one that joins them, then steps on the text.
#include "server/text/decode/token_texts.h"

#include <algorithm>
#include <functional>
#include <memory>
#include <utility>

#include "engine/base/status_macros.h"
#include "server/text/model/byte_tokens.h"
#include "server/text/pattern/pattern.h"
#include "server/text/pieces/space_rewriter.h"
#include "server/text/unicode/byte_alphabet.h"
#include "server/text/unicode/unicode.h"

namespace quire {
namespace {

// No real decoder strips more.
constexpr int32_t kMaxStrip = 1024;

// `text` without up to `count` of `character` at its begin, and at its end.
void StripBegin(std::string_view character, int count, std::string* text) {
  for (; count > 0 && text->starts_with(character); --count) text->erase(0, character.size());
}
void StripEnd(std::string_view character, int count, std::string* text) {
  for (; count > 0 && text->ends_with(character); --count) {
    text->resize(text->size() - character.size());
  }
}

absl::Status ReplaceAll(const Pattern& pattern, const std::string& content, std::string* text) {
  std::vector<Span> matches;
  RETURN_IF_ERROR(pattern.FindAll(*text, &matches));
  for (size_t i = matches.size(); i > 0; --i) {
    const Span& match = matches[i - 1];
    text->replace(match.begin, match.end - match.begin, content);
  }
  return absl::OkStatus();
}

}  // namespace

class TokenTexts::Reader {
 public:
  Reader(const JsonNode& decoder, TokenTexts* out) : decoder_(decoder), out_(out) {}

  absl::Status Read() {
    ASSIGN_OR_RETURN(const std::vector<JsonNode> steps, FlattenSequence(decoder_, "decoders"));
    for (const JsonNode& step : steps) RETURN_IF_ERROR(ReadStep(step));
    return absl::OkStatus();
  }

 private:
  using Edit = std::function<absl::Status(std::string*)>;

  absl::Status ReadStep(const JsonNode& node) {
    ASSIGN_OR_RETURN(const std::string type, ReadString(node, "type"));
    if (type == "Fuse") {
      RETURN_IF_ERROR(CheckKeys(node, {"type"}));
      joined_ = true;
      return absl::OkStatus();
    }
    if (type == "Strip") return ReadStrip(node);
    if (type != "ByteLevel" && type != "ByteFallback" && type != "Replace" && type != "Metaspace") {
      return Refuse(node.At("type"));
    }
    if (joined_ || !out_->is_byte_.empty()) {
      return Refuse(node, "after a step that joins tokens it is not supported");
    }
    if (type == "ByteLevel") return ReadByteLevel(node);
    if (type == "Replace") return ReadReplace(node);
    if (type == "Metaspace") return ReadMetaspace(node);
    RETURN_IF_ERROR(CheckKeys(node, {"type"}));
    ApplyByteFallback();
    return absl::OkStatus();
  }

  absl::Status EditTexts(const Edit& edit) {
    for (std::string& text : out_->texts_) RETURN_IF_ERROR(edit(&text));
    for (std::string& text : out_->first_texts_) RETURN_IF_ERROR(edit(&text));
    return absl::OkStatus();
  }

  absl::Status ReadByteLevel(const JsonNode& node) {
    RETURN_IF_ERROR(CheckKeys(node, {"type", "add_prefix_space", "trim_offsets", "use_regex"}));
    out_->byte_level_ = joined_ = true;
    return EditTexts([](std::string* text) {
      if (auto bytes = BytesOfToken(*text)) *text = *std::move(bytes);
      return absl::OkStatus();
    });
  }

  absl::Status ReadReplace(const JsonNode& node) {
    RETURN_IF_ERROR(CheckKeys(node, {"type", "pattern", "content"}));
    ASSIGN_OR_RETURN(const auto pattern, ReadPattern(node));
    ASSIGN_OR_RETURN(const std::string content, ReadString(node, "content"));
    return EditTexts([&](std::string* text) { return ReplaceAll(*pattern, content, text); });
  }

  absl::Status ReadMetaspace(const JsonNode& node) {
    RETURN_IF_ERROR(CheckKeys(
        node, {"type", "replacement", "str_rep", "add_prefix_space", "prepend_scheme", "split"}));
    if (!out_->first_texts_.empty()) return Refuse(node, "a second Metaspace is not supported");
    ASSIGN_OR_RETURN(const std::string space, ReadChar(node, "replacement"));
    ASSIGN_OR_RETURN(const PrependScheme scheme, ReadPrependScheme(node));
    const auto pattern = MakeLiteralPattern(space);
    // The first token loses each space character, wherever it stands in it.
    if (scheme != PrependScheme::kNever) {
      out_->first_texts_ = out_->texts_;
      for (std::string& text : out_->first_texts_) {
        RETURN_IF_ERROR(ReplaceAll(*pattern, "", &text));
      }
    }
    for (std::string& text : out_->texts_) RETURN_IF_ERROR(ReplaceAll(*pattern, " ", &text));
    return absl::OkStatus();
  }

  absl::Status ReadStrip(const JsonNode& node) {
    RETURN_IF_ERROR(CheckKeys(node, {"type", "content", "start", "stop"}));
    ASSIGN_OR_RETURN(const std::string character, ReadChar(node, "content"));
    ASSIGN_OR_RETURN(const int32_t start, ReadCount(node, "start", kMaxStrip));
    ASSIGN_OR_RETURN(const int32_t stop, ReadCount(node, "stop", kMaxStrip));
    if (!joined_ && out_->is_byte_.empty()) {
      return EditTexts([&](std::string* text) {
        StripBegin(character, start, text);
        StripEnd(character, stop, text);
        return absl::OkStatus();
      });
    }
    if (!joined_) return Refuse(node, "between ByteFallback and Fuse it is not supported");
    if (stop > 0) return Refuse(node.At("stop"), "at the end of the text is not supported");
    if (out_->strip_count_ > 0) return Refuse(node, "a second Strip of the text is not supported");
    out_->strip_ = character;
    out_->strip_count_ = start;
    return absl::OkStatus();
  }

  void ApplyByteFallback() {
    out_->is_byte_.resize(out_->texts_.size());
    for (size_t id = 0; id < out_->texts_.size(); ++id) {
      const auto byte = ByteOfToken(out_->texts_[id]);
      if (!byte.has_value()) continue;
      out_->is_byte_[id] = true;
      out_->texts_[id].assign(1, *byte);
      if (!out_->first_texts_.empty()) out_->first_texts_[id].assign(1, *byte);
    }
  }

  const JsonNode& decoder_;
  TokenTexts* const out_;
  bool joined_ = false;  // the tokens are one text
};

absl::StatusOr<TokenTexts> TokenTexts::Make(const JsonNode& decoder,
                                            std::vector<std::string> written,
                                            std::vector<bool> special) {
  TokenTexts made;
  made.special_ = std::move(special);
  made.has_.resize(written.size());
  for (size_t id = 0; id < written.size(); ++id) made.has_[id] = !written[id].empty();
  made.texts_ = std::move(written);
  RETURN_IF_ERROR(Reader(decoder, &made).Read());
  return made;
}

}  // namespace quire
