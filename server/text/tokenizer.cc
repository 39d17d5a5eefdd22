// Converts text to ids and ids to text.
#include "server/text/tokenizer.h"

#include <algorithm>
#include <span>
#include <utility>

#include "absl/strings/str_cat.h"
#include "engine/base/status_macros.h"
#include "server/text/decode/decode_stream.h"
#include "server/text/pattern/stop_mark.h"
#include "server/text/pattern/text_budget.h"
#include "server/text/tokenizer_data.h"
#include "server/text/unicode/unicode.h"

namespace quire {
namespace {

// Offsets are 32 bits wide, and normalizers make text longer; real prompts are far shorter.
constexpr size_t kMaxTextBytes = size_t{1} << 28;

}  // namespace

// One call of Encode.
class Tokenizer::EncodePass {
 public:
  EncodePass(const Data& data, std::string_view source, std::vector<int32_t>* ids,
             std::vector<TokenOffset>* offsets)
      : data_(data),
        source_(source),
        ids_(ids),
        offsets_(offsets),
        first_(ids->size()),
        tracked_(offsets != nullptr || data.pre_tokenizer.needs_origin()) {}

  absl::Status Run(bool parse_special) {
    if (data_.raw_tokens.empty()) return AddSection(0, source_.size(), parse_special);
    for (const auto& part : data_.raw_tokens.Split(source_, parse_special)) {
      if (part.id >= 0) {
        AddAddedToken(part.id, Passage{source_, 0, {}}.Slice(part.begin, part.end));
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
    Passage passage{source_.substr(begin, end - begin), begin, {}};
    RETURN_IF_ERROR(data_.normalizer.Run(tracked_, &passage, &normalized_));
    if (passage.text.size() > kMaxTextBytes) {
      return absl::InvalidArgumentError(absl::StrCat("normalized text of ", passage.text.size(),
                                                     " bytes; the limit is ", kMaxTextBytes));
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
    RETURN_IF_ERROR(data_.pre_tokenizer.Run(tracked_, &passage, &work_));
    const size_t had = ids_->size();
    spans_.clear();
    RETURN_IF_ERROR(EncodePieces(passage.text));
    for (size_t i = 0; i < spans_.size(); ++i) {
      TokenOffset offset = passage.ToSource(spans_[i].begin, spans_[i].end);
      if (data_.post_processor.trims()) {
        Trim(data_.written[(*ids_)[had + i]], had + i == first_, &offset);
      }
      offsets_->push_back(offset);
    }
    return absl::OkStatus();
  }

  // A few at a time: between them the job ends if its call has ended.
  absl::Status EncodePieces(std::string_view text) {
    constexpr size_t kAtATime = 4096;
    std::vector<Span>* const spans = offsets_ != nullptr ? &spans_ : nullptr;
    for (std::span<const Span> left = work_.pieces; !left.empty();) {
      RETURN_IF_ERROR(StopMark::CheckThread());
      const size_t count = std::min(left.size(), kAtATime);
      data_.model->Encode(text, left.first(count), ids_, spans);
      left = left.subspan(count);
    }
    return absl::OkStatus();
  }

  void AddAddedToken(int32_t id, const Passage& passage) {
    ids_->push_back(id);
    if (offsets_ == nullptr) return;
    TokenOffset offset = passage.ToSource(0, passage.text.size());
    if (data_.post_processor.trims()) Trim(passage.text, ids_->size() - 1 == first_, &offset);
    offsets_->push_back(offset);
  }

  void Trim(std::string_view token, bool is_first, TokenOffset* offset) const {
    data_.post_processor.Trim(source_, token, is_first, offset);
  }

  const Data& data_;
  const std::string_view source_;
  std::vector<int32_t>* const ids_;
  std::vector<TokenOffset>* const offsets_;  // may be null
  const size_t first_;                       // ids before this call's
  const bool tracked_;                       // origins of normalized text are needed

  NormalizedText normalized_;
  PreTokenizer::Work work_;
  std::vector<Span> spans_;
};

absl::StatusOr<std::unique_ptr<const Tokenizer>> Tokenizer::Load(const std::string& path) {
  ASSIGN_OR_RETURN(const TokenizerFile file, ReadTokenizerFile(path));
  return Make(file, path);
}

absl::StatusOr<std::unique_ptr<const Tokenizer>> Tokenizer::Make(const TokenizerFile& file,
                                                                 const std::string& path) {
  auto data = std::make_unique<Data>();
  if (absl::Status status = data->Build(file); !status.ok()) {
    return absl::InvalidArgumentError(absl::StrCat(path, ": ", status.message()));
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
  const auto add = [&](const std::vector<int32_t>& special) {
    if (add_special) ids->insert(ids->end(), special.begin(), special.end());
    if (offsets != nullptr) offsets->resize(offsets_before + ids->size() - ids_before);
  };
  add(data_->post_processor.ids_before());
  const TextBudget budget(text.size());
  const absl::Status status = EncodePass(*data_, text, ids, offsets).Run(parse_special);
  if (!status.ok()) {
    ids->resize(ids_before);
    if (offsets != nullptr) offsets->resize(offsets_before);
    return status;
  }
  add(data_->post_processor.ids_after());
  return absl::OkStatus();
}

std::string_view Tokenizer::TokenBytes(int32_t id, bool skip_special) const {
  if (!data_->texts.Has(id) || (skip_special && IsSpecial(id))) return {};
  return data_->texts.Text(id, /*first=*/false);
}

std::string Tokenizer::Decode(const std::vector<int32_t>& ids, bool skip_special) const {
  std::string out;
  DecodeStream stream(&data_->texts, {.skip_special = skip_special, .whole_runs = true});
  for (const int32_t id : ids) stream.Push(id, &out);
  stream.Finish(&out);
  return out;
}

const TokenTexts& Tokenizer::texts() const { return data_->texts; }

std::optional<int32_t> Tokenizer::IdOf(std::string_view token) const {
  const auto at = data_->id_of.find(token);
  return at == data_->id_of.end() ? std::nullopt : std::optional<int32_t>(at->second);
}

bool Tokenizer::IsSpecial(int32_t id) const { return data_->texts.IsSpecial(id); }

int32_t Tokenizer::size() const { return data_->texts.size(); }

}  // namespace quire
