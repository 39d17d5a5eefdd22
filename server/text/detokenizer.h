// Detokenizer: converts the ids of one output stream to text, incrementally. Emits whole code
// points only, and no part of a stop string even if it spans tokens: text that may become a match
// is held back.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "server/text/decode/decode_stream.h"
#include "server/text/tokenizer.h"

namespace quire {

class Detokenizer {
 public:
  struct Options {
    std::vector<std::string> stop;  // non-empty, valid UTF-8
    bool include_stop = false;      // the matched stop string stays in the text
    bool skip_special = true;
    std::vector<int32_t> shown = {};  // special tokens that are not skipped
    // The tokens continue a text, so a space before their first word belongs to them.
    bool continues = true;
  };
  // `tokenizer` outlives this.
  Detokenizer(const Tokenizer* tokenizer, Options options);

  // Adds one token and appends the text that is certain now to `out`. Returns true when a stop
  // string has matched: the text is then final and later tokens are ignored. With `scan` false,
  // stop strings are not searched in the token's text; allowed only at the beginning of a stream.
  bool Push(int32_t token, std::string* out, bool scan = true);
  // Ends the stream: appends held-back text; an incomplete code point becomes U+FFFD.
  void Flush(std::string* out);
  // Whether Flush would append text.
  bool holds() const { return matched_stop_ < 0 && (!held_.empty() || stream_.pending()); }
  // Index into Options::stop of the match, -1 if none. Of several matches, the one that ends first
  // wins; of several that end there, the longest.
  int matched_stop() const { return matched_stop_; }

 private:
  // The length of the stop string's prefix that the text ends with (Knuth, Morris, Pratt).
  struct StopState {
    // By matched length: the next shorter prefix that the text also ends with.
    std::vector<uint32_t> border;
    uint32_t matched = 0;
  };
  // The stop string that ends with `byte`, the longest if several, -1 if none.
  int Advance(char byte);
  bool PushText(std::string_view text, std::string* out);

  Options options_;
  DecodeStream stream_;
  std::vector<StopState> stops_;
  std::string held_;  // text not yet certain
  int matched_stop_ = -1;
};

}  // namespace quire
