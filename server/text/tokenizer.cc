// Converts text to ids and ids to text.
#include "server/text/tokenizer.h"

#include <algorithm>
#include <span>
#include <utility>

#include "absl/strings/str_cat.h"
#include "engine/base/status_macros.h"
#include "server/text/nfc.h"
#include "server/text/tokenizer_data.h"
#include "server/text/unicode.h"

namespace quire {
namespace {

// Offsets are 32 bits wide; real prompts are far shorter.
constexpr size_t kMaxTextBytes = size_t{1} << 30;

bool IsSpaceAt(std::string_view text, size_t at) {
  return ClassOf(CharClasses(), DecodeUtf8(text.data() + at).value) == CharClass::kSpace;
}

// Normalized text. Byte i comes from the source's code point at origin[i], or, if the text is
// unchanged (origin is empty), from the one at base + i.
struct Passage {
  std::string_view text;
  size_t base = 0;
  std::span<const TokenOffset> origin;

  // The source range of bytes [begin, end): the code points that contain them.
  TokenOffset ToSource(size_t begin, size_t end) const {
    if (!origin.empty()) return {origin[begin].begin, origin[end - 1].end};
    return {static_cast<int32_t>(base + CodePointBegin(text, begin)),
            static_cast<int32_t>(base + CodePointEnd(text, end - 1))};
  }
  Passage Slice(size_t begin, size_t end) const {
    return {text.substr(begin, end - begin), base + begin,
            origin.empty() ? origin : origin.subspan(begin, end - begin)};
  }
};

}  // namespace

// One call of Encode.
class Tokenizer::EncodePass {
 public:
  EncodePass(const Data& data, std::string_view source, std::vector<int32_t>* ids,
             std::vector<TokenOffset>* offsets)
      : data_(data), source_(source), ids_(ids), offsets_(offsets), first_(ids->size()) {}

  absl::Status Run(bool parse_special) {
    if (data_.raw_tokens.empty()) return AddSection(0, source_.size(), parse_special);
    for (const auto& part : data_.raw_tokens.Split(source_, parse_special)) {
      if (part.id >= 0) {
        AddAddedToken(part.id, Passage{source_, 0}.Slice(part.begin, part.end));
      } else {
        RETURN_IF_ERROR(AddSection(part.begin, part.end, parse_special));
      }
    }
    return absl::OkStatus();
  }

 private:
  // Encodes a part of the source without raw added tokens: normalizes it, then cuts it at the other
  // added tokens.
  absl::Status AddSection(size_t begin, size_t end, bool parse_special) {
    Passage passage{source_.substr(begin, end - begin), begin};
    if (data_.nfc && NfcNormalizer::Get().MayChange(passage.text)) {
      NfcNormalizer::Get().Normalize(passage.text, &normal_form_,
                                     offsets_ != nullptr ? &origin_ : nullptr);
      for (TokenOffset& from : origin_) {
        from.begin += static_cast<int32_t>(begin);
        from.end += static_cast<int32_t>(begin);
      }
      passage = {normal_form_, begin, origin_};
    }
    if (data_.normalized_tokens.empty()) return AddText(passage);
    for (const auto& part : data_.normalized_tokens.Split(passage.text, parse_special)) {
      const Passage slice = passage.Slice(part.begin, part.end);
      if (part.id >= 0) {
        AddAddedToken(part.id, slice);
      } else {
        RETURN_IF_ERROR(AddText(slice));
      }
    }
    return absl::OkStatus();
  }

  absl::Status AddText(Passage passage) {
    if (passage.text.empty()) return absl::OkStatus();
    if (data_.add_prefix_space && passage.text[0] != ' ') passage = Prefix(passage);
    RETURN_IF_ERROR(Split(passage.text));
    uint32_t begin = 0;
    for (const uint32_t end : ends_) {
      const size_t had = ids_->size();
      data_.byte_pairs->Encode(passage.text.substr(begin, end - begin), ids_);
      if (offsets_ != nullptr) AddOffsets(passage, begin, had);
      begin = end;
    }
    return absl::OkStatus();
  }

  // The passage after a space, which belongs to its first code point.
  Passage Prefix(const Passage& passage) {
    prefixed_.assign(1, ' ').append(passage.text);
    prefixed_origin_.clear();
    if (offsets_ != nullptr) {
      prefixed_origin_.push_back(passage.ToSource(0, 1));
      for (size_t i = 0; i < passage.text.size(); ++i) {
        prefixed_origin_.push_back(passage.ToSource(i, i + 1));
      }
    }
    return {prefixed_, passage.base, prefixed_origin_};
  }

  // Fills ends_: every splitter cuts the pieces of the previous one.
  absl::Status Split(std::string_view text) {
    ends_.clear();
    if (data_.splitters.empty()) ends_.push_back(static_cast<uint32_t>(text.size()));
    for (size_t i = 0; i < data_.splitters.size(); ++i) {
      if (i == 0) {
        RETURN_IF_ERROR(data_.splitters[0]->Split(text, &ends_));
        continue;
      }
      const std::vector<uint32_t> coarse = std::exchange(ends_, {});
      uint32_t begin = 0;
      for (const uint32_t end : coarse) {
        const size_t had = ends_.size();
        RETURN_IF_ERROR(data_.splitters[i]->Split(text.substr(begin, end - begin), &ends_));
        for (size_t k = had; k < ends_.size(); ++k) ends_[k] += begin;
        begin = end;
      }
    }
    return absl::OkStatus();
  }

  // Adds the offsets of the ids from index `first`, whose bytes begin at `begin` of the passage.
  void AddOffsets(const Passage& passage, size_t begin, size_t first) {
    for (size_t i = first; i < ids_->size(); ++i) {
      const size_t end = begin + data_.byte_pairs->TokenSize((*ids_)[i]);
      TokenOffset offset = passage.ToSource(begin, end);
      if (data_.trim_offsets) {
        const std::string_view bytes = passage.text.substr(begin, end - begin);
        const size_t leading = std::min(bytes.find_first_not_of(' '), bytes.size());
        const size_t last = bytes.find_last_not_of(' ');
        const size_t trailing = last == bytes.npos ? bytes.size() : bytes.size() - 1 - last;
        Trim(leading, trailing, i == first_, &offset);
      }
      offsets_->push_back(offset);
      begin = end;
    }
  }

  void AddAddedToken(int32_t id, const Passage& passage) {
    ids_->push_back(id);
    if (offsets_ == nullptr) return;
    TokenOffset offset = passage.ToSource(0, passage.text.size());
    if (data_.trim_offsets) {
      const std::string_view text = passage.text;
      size_t leading = 0, trailing = 0;
      for (size_t at = 0; at < text.size() && IsSpaceAt(text, at); ++leading) {
        at = CodePointEnd(text, at);
      }
      for (size_t at = text.size(); at > 0 && IsSpaceAt(text, CodePointBegin(text, at - 1));
           ++trailing) {
        at = CodePointBegin(text, at - 1);
      }
      Trim(leading, trailing, ids_->size() - 1 == first_, &offset);
    }
    offsets_->push_back(offset);
  }

  // Trims white space from an offset, counted in code points of the source. Like the `tokenizers`
  // package, it also trims a space that add_prefix_space inserted.
  void Trim(size_t leading, size_t trailing, bool is_first, TokenOffset* offset) const {
    is_first = is_first || offset->begin == 0;
    if (is_first && leading == 1 && data_.trim_keeps_prefix_space) leading = 0;
    size_t begin = offset->begin, end = offset->end;
    for (; leading > 0 && begin < end; --leading) begin = CodePointEnd(source_, begin);
    offset->begin = static_cast<int32_t>(begin);
    for (; trailing > 0; --trailing) {
      if (end == 0) return;
      end = CodePointBegin(source_, end - 1);
    }
    offset->end = static_cast<int32_t>(std::max(end, begin));
  }

  const Data& data_;
  const std::string_view source_;
  std::vector<int32_t>* const ids_;
  std::vector<TokenOffset>* const offsets_;  // may be null
  const size_t first_;                       // ids before this call's

  std::string normal_form_, prefixed_;
  std::vector<TokenOffset> origin_, prefixed_origin_;
  std::vector<uint32_t> ends_;
};

absl::StatusOr<std::unique_ptr<const Tokenizer>> Tokenizer::Load(const std::string& path) {
  ASSIGN_OR_RETURN(const TokenizerFile file, ReadTokenizerFile(path));
  auto data = std::make_unique<Data>();
  if (absl::Status status = data->Build(file); !status.ok()) {
    return absl::Status(status.code(), absl::StrCat(path, ": ", status.message()));
  }
  return std::unique_ptr<const Tokenizer>(new Tokenizer(std::move(data)));
}

Tokenizer::Tokenizer(std::unique_ptr<const Data> data) : data_(std::move(data)) {}
Tokenizer::~Tokenizer() = default;

absl::Status Tokenizer::Encode(std::string_view text, bool add_special, bool parse_special,
                               std::vector<int32_t>* ids, std::vector<TokenOffset>* offsets) const {
  if (text.size() > kMaxTextBytes) {
    return absl::InvalidArgumentError(
        absl::StrCat("text of ", text.size(), " bytes; the limit is ", kMaxTextBytes));
  }
  if (const size_t at = FindInvalidUtf8(text); at != text.npos) {
    return absl::InvalidArgumentError(absl::StrCat("text is not valid UTF-8 at byte ", at));
  }
  const size_t ids_before = ids->size();
  const size_t offsets_before = offsets != nullptr ? offsets->size() : 0;
  if (add_special) ids->insert(ids->end(), data_->ids_before.begin(), data_->ids_before.end());
  if (offsets != nullptr) offsets->resize(offsets_before + ids->size() - ids_before);

  const absl::Status status = EncodePass(*data_, text, ids, offsets).Run(parse_special);
  if (!status.ok()) {
    ids->resize(ids_before);
    if (offsets != nullptr) offsets->resize(offsets_before);
    return status;
  }
  if (add_special) ids->insert(ids->end(), data_->ids_after.begin(), data_->ids_after.end());
  if (offsets != nullptr) offsets->resize(offsets_before + ids->size() - ids_before);
  return absl::OkStatus();
}

std::string_view Tokenizer::TokenBytes(int32_t id, bool skip_special) const {
  if (id < 0 || id >= size() || (skip_special && data_->special[id])) return {};
  return data_->bytes[id];
}

std::string Tokenizer::Decode(const std::vector<int32_t>& ids, bool skip_special) const {
  std::string out;
  Utf8Repair repair;
  for (const int32_t id : ids) repair.Push(TokenBytes(id, skip_special), &out);
  repair.Finish(&out);
  return out;
}

std::optional<int32_t> Tokenizer::IdOf(std::string_view token) const {
  const auto at = data_->id_of.find(token);
  return at == data_->id_of.end() ? std::nullopt : std::optional<int32_t>(at->second);
}

bool Tokenizer::IsSpecial(int32_t id) const { return id >= 0 && id < size() && data_->special[id]; }

int32_t Tokenizer::size() const { return static_cast<int32_t>(data_->written.size()); }

}  // namespace quire
