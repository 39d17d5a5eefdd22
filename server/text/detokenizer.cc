// Makes text, matches stop strings in the text, and emits the certain part.
#include "server/text/detokenizer.h"

#include <algorithm>

#include "kernels/check.h"

namespace quire {

Detokenizer::Detokenizer(const Tokenizer* tokenizer, Options options)
    : options_(std::move(options)),
      stream_(&tokenizer->texts(), {.skip_special = options_.skip_special,
                                    .shown = options_.shown,
                                    .at_start = !options_.continues}) {
  for (const std::string& stop : options_.stop) {
    CHECK(!stop.empty());
    StopState state;
    state.border.resize(stop.size() + 1);
    for (uint32_t i = 1, k = 0; i < stop.size(); ++i) {
      while (k > 0 && stop[i] != stop[k]) k = state.border[k];
      if (stop[i] == stop[k]) ++k;
      state.border[i + 1] = k;
    }
    stops_.push_back(std::move(state));
  }
}

int Detokenizer::Advance(char byte) {
  int found = -1;
  for (size_t i = 0; i < stops_.size(); ++i) {
    const std::string& stop = options_.stop[i];
    StopState& state = stops_[i];
    while (state.matched > 0 && stop[state.matched] != byte) {
      state.matched = state.border[state.matched];
    }
    if (stop[state.matched] == byte) ++state.matched;
    if (state.matched < stop.size()) continue;
    if (found < 0 || stop.size() > options_.stop[found].size()) found = static_cast<int>(i);
  }
  return found;
}

bool Detokenizer::PushText(std::string_view text, std::string* out) {
  for (const char byte : text) {
    held_.push_back(byte);
    matched_stop_ = Advance(byte);
    if (matched_stop_ < 0) continue;
    if (!options_.include_stop) held_.resize(held_.size() - options_.stop[matched_stop_].size());
    out->append(held_);
    held_.clear();
    return true;
  }
  // The longest end of the text that begins a stop string may become that stop string.
  size_t uncertain = 0;
  for (const StopState& state : stops_) uncertain = std::max<size_t>(uncertain, state.matched);
  const size_t certain = held_.size() - uncertain;
  out->append(held_, 0, certain);
  held_.erase(0, certain);
  return false;
}

bool Detokenizer::Push(int32_t token, std::string* out, bool scan) {
  if (matched_stop_ >= 0) return true;
  std::string text;
  stream_.Push(token, &text);
  if (!scan) {
    out->append(text);
    return false;
  }
  return PushText(text, out);
}

void Detokenizer::Flush(std::string* out) {
  if (matched_stop_ >= 0) return;
  std::string text;
  stream_.Finish(&text);
  if (PushText(text, out)) return;
  out->append(held_);
  held_.clear();
}

}  // namespace quire
