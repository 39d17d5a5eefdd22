// Joins texts of tokens and repairs their bytes.
#include "server/text/decode/decode_stream.h"

#include <algorithm>

namespace quire {

DecodeStream::DecodeStream(const TokenTexts* texts, const Options& options)
    : texts_(texts),
      options_(options),
      first_(options.at_start),
      strip_count_(options.at_start ? texts->strip_count() : 0),
      repair_(texts->byte_level() ? Utf8Repair::Substitute::kMaximalPart
                                  : Utf8Repair::Substitute::kEachByte) {}

bool DecodeStream::Skips(int32_t id) const {
  if (!texts_->Has(id)) return true;
  return options_.skip_special && texts_->IsSpecial(id) &&
         std::ranges::find(options_.shown, id) == options_.shown.end();
}

void DecodeStream::Push(int32_t id, std::string* out) {
  if (Skips(id)) return;
  const std::string_view text = texts_->Text(id, first_);
  first_ = false;
  const size_t begin = out->size();
  if (texts_->byte_level()) {
    repair_.Push(text, out);
  } else if (!texts_->IsByte(id)) {
    EndRun(out);
    out->append(text);
  } else if (options_.whole_runs) {
    run_.append(text);
  } else {
    repair_.Push(text, out);
  }
  if (strip_count_ > 0) Strip(begin, out);
}

void DecodeStream::EndRun(std::string* out) {
  repair_.Finish(out);
  if (FindInvalidUtf8(run_) == std::string::npos) {
    out->append(run_);
  } else {
    for (size_t i = 0; i < run_.size(); ++i) out->append(kReplacementCharacter);
  }
  run_.clear();
}

void DecodeStream::Strip(size_t begin, std::string* out) {
  const std::string& character = texts_->strip();
  size_t end = begin;
  while (strip_count_ > 0 && out->compare(end, character.size(), character) == 0) {
    end += character.size();
    --strip_count_;
  }
  if (end < out->size()) strip_count_ = 0;
  out->erase(begin, end - begin);
}

void DecodeStream::Finish(std::string* out) {
  const size_t begin = out->size();
  EndRun(out);
  if (strip_count_ > 0) Strip(begin, out);
}

}  // namespace quire
