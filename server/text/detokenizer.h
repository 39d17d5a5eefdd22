// Detokenizer: one output stream's ids to text, incrementally. Emits whole code points only and
// never any part of a stop string, also when it spans tokens: text that may still become a match is
// held back.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "server/text/tokenizer.h"
#include "server/text/unicode.h"

namespace quire {

class Detokenizer {
 public:
  struct Options {
    std::vector<std::string> stop;  // non-empty, valid UTF-8
    bool include_stop = false;      // the matched stop string stays in the text
    bool skip_special = true;
  };
  // `tokenizer` outlives this.
  Detokenizer(const Tokenizer* tokenizer, Options options);

  // Adds one token and appends the text that is now certain to `out`. Returns true when a stop
  // string has matched: the text is final and later tokens are ignored.
  // With `scan` off the token's text is let through without looking for stop strings; only at the
  // beginning of a stream.
  bool Push(int32_t token, std::string* out, bool scan = true);
  // The end of the stream: appends what was held back (an incomplete code point becomes U+FFFD).
  void Flush(std::string* out);
  // Index into Options::stop of the match, -1 if none. With several matches the one that ends first
  // wins, ties go to the longest.
  int matched_stop() const { return matched_stop_; }

 private:
  // How much of one stop string the text ends with, kept as the text grows (Knuth, Morris, Pratt).
  struct StopState {
    std::vector<uint32_t>
        border;  // by length matched: the longest shorter prefix that ends there too
    uint32_t matched = 0;
  };
  // The stop string that ends with `byte`, the longest if several, -1 if none.
  int Advance(char byte);
  bool PushText(std::string_view text, std::string* out);

  const Tokenizer* tokenizer_;
  Options options_;
  Utf8Repair repair_;
  std::vector<StopState> stops_;
  std::string held_;  // text not yet certain
  int matched_stop_ = -1;
};

}  // namespace quire
