// DecodeStream: makes the text of a row of tokens, one after the other. For one thread.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "server/text/decode/token_texts.h"
#include "server/text/unicode/unicode.h"

namespace quire {

class DecodeStream {
 public:
  struct Options {
    bool skip_special = true;
    std::vector<int32_t> shown = {};  // special tokens that are not skipped
    // The tokens begin a text, which decoders of SentencePiece models give without the space that
    // its encoder put there. A continuation of another text keeps its spaces.
    bool at_start = true;
    // How bytes of byte-fallback tokens become text: as a run, which is U+FFFD for each byte if any
    // of it is invalid (the rule of the `tokenizers` package), or code point by code point, so that
    // text need not wait for the end of a run. The two differ only in runs with invalid bytes.
    bool whole_runs = false;
  };
  // `texts` outlives this.
  DecodeStream(const TokenTexts* texts, const Options& options);

  // Appends the text that the token completes. Ids without a token have none.
  void Push(int32_t id, std::string* out);
  // Ends the row: bytes that wait for others become U+FFFD.
  void Finish(std::string* out);
  // Whether bytes wait for others.
  bool pending() const { return repair_.pending() || !run_.empty(); }

 private:
  bool Skips(int32_t id) const;
  void EndRun(std::string* out);
  // Strips the text from byte `begin` of `out` on, if it is the begin of the whole text.
  void Strip(size_t begin, std::string* out);

  const TokenTexts* texts_;
  Options options_;
  bool first_;       // no token came yet
  int strip_count_;  // characters that may still be stripped
  Utf8Repair repair_;
  std::string run_;  // bytes, if whole_runs
};

}  // namespace quire
