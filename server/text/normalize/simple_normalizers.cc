// Each normalizer lists its changes in the order of the `tokenizers` package, whose origins they
// decide.
#include "server/text/normalize/simple_normalizers.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "engine/base/status_macros.h"
#include "server/text/unicode/byte_alphabet.h"
#include "server/text/unicode/char_sets.h"
#include "server/text/unicode/unicode.h"

namespace quire {
namespace {

std::vector<char32_t> CodePointsOf(std::string_view text) {
  std::vector<char32_t> out;
  out.reserve(text.size());
  for (size_t at = 0; at < text.size();) {
    const CodePoint c = DecodeUtf8(text.data() + at);
    out.push_back(c.value);
    at += c.size;
  }
  return out;
}

bool IsSpace(char32_t c) { return ClassOf(CharClasses(), c) == CharClass::kSpace; }

class Prepend final : public Normalizer {
 public:
  explicit Prepend(std::string prefix) : prefix_(std::move(prefix)) {}
  bool MayChange(std::string_view text) const override { return !text.empty(); }
  absl::Status Apply(NormalizedText* text) const override {
    text->Prepend(prefix_);
    return absl::OkStatus();
  }

 private:
  const std::string prefix_;
};

class Replace final : public Normalizer {
 public:
  Replace(std::unique_ptr<const Pattern> pattern, std::string content)
      : pattern_(std::move(pattern)), content_(std::move(content)) {}
  bool MayChange(std::string_view text) const override { return !text.empty(); }
  absl::Status Apply(NormalizedText* text) const override {
    std::vector<Span> matches;
    RETURN_IF_ERROR(pattern_->FindAll(text->text(), &matches));
    if (!matches.empty()) text->Replace(matches, content_);
    return absl::OkStatus();
  }

 private:
  const std::unique_ptr<const Pattern> pattern_;
  const std::string content_;
};

class Strip final : public Normalizer {
 public:
  Strip(bool left, bool right) : left_(left), right_(right) {}
  bool MayChange(std::string_view text) const override { return !text.empty(); }
  absl::Status Apply(NormalizedText* text) const override {
    const std::vector<char32_t> chars = CodePointsOf(text->text());
    size_t leading = 0, trailing = 0;
    while (left_ && leading < chars.size() && IsSpace(chars[leading])) ++leading;
    while (right_ && trailing < chars.size() && IsSpace(chars[chars.size() - 1 - trailing])) {
      ++trailing;
    }
    if (leading == 0 && trailing == 0) return absl::OkStatus();
    const size_t end = chars.size() - trailing;
    std::vector<CharChange> changes;
    for (size_t i = leading; i < end; ++i) {
      changes.push_back({chars[i], i + 1 == end ? -static_cast<int32_t>(trailing) : 0});
    }
    text->Transform(changes, leading);
    return absl::OkStatus();
  }

 private:
  const bool left_, right_;
};

class Lowercase final : public Normalizer {
 public:
  bool MayChange(std::string_view text) const override { return !text.empty(); }
  absl::Status Apply(NormalizedText* text) const override {
    std::vector<CharChange> changes;
    std::u32string lower;
    for (const char32_t c : CodePointsOf(text->text())) {
      lower.clear();
      AppendLower(c, &lower);
      for (size_t i = 0; i < lower.size(); ++i) changes.push_back({lower[i], i == 0 ? 0 : 1});
    }
    text->Transform(changes);
    return absl::OkStatus();
  }
};

class StripAccents final : public Normalizer {
 public:
  bool MayChange(std::string_view text) const override {
    return std::ranges::any_of(text, [](char byte) { return static_cast<uint8_t>(byte) >= 0x80; });
  }
  absl::Status Apply(NormalizedText* text) const override {
    std::vector<CharChange> changes;
    size_t removed_first = 0;
    for (const char32_t c : CodePointsOf(text->text())) {
      if (!IsAccent(c)) {
        changes.push_back({c, 0});
      } else if (changes.empty()) {
        ++removed_first;
      } else {
        --changes.back().change;  // an accent goes with the code point before it
      }
    }
    text->Transform(changes, removed_first);
    return absl::OkStatus();
  }
};

class ByteAlphabet final : public Normalizer {
 public:
  bool MayChange(std::string_view text) const override { return !text.empty(); }
  absl::Status Apply(NormalizedText* text) const override {
    std::vector<CharChange> changes;
    std::string written;
    const std::string& bytes = text->text();
    for (size_t at = 0; at < bytes.size(); ++at) {
      written.clear();
      AppendWritten(static_cast<uint8_t>(bytes[at]), &written);
      const bool first = CodePointBegin(bytes, at) == at;
      changes.push_back({DecodeUtf8(written.data()).value, first ? 0 : 1});
    }
    text->Transform(changes);
    return absl::OkStatus();
  }
};

}  // namespace

std::unique_ptr<const Normalizer> MakePrepend(std::string prefix) {
  return std::make_unique<Prepend>(std::move(prefix));
}
std::unique_ptr<const Normalizer> MakeReplace(std::unique_ptr<const Pattern> pattern,
                                              std::string content) {
  return std::make_unique<Replace>(std::move(pattern), std::move(content));
}
std::unique_ptr<const Normalizer> MakeStrip(bool left, bool right) {
  return std::make_unique<Strip>(left, right);
}
std::unique_ptr<const Normalizer> MakeLowercase() { return std::make_unique<Lowercase>(); }
std::unique_ptr<const Normalizer> MakeByteAlphabet() { return std::make_unique<ByteAlphabet>(); }
std::unique_ptr<const Normalizer> MakeStripAccents() { return std::make_unique<StripAccents>(); }

}  // namespace quire
