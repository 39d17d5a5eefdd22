// TokenGuide: says which tokens may come next so that the text of a row stays within its grammar,
// and that the text can always be finished. A CompiledGuide is the grammar that rows share.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

namespace quire {

// The place of one row's text in its grammar. One thread at a time may use an object; the objects
// of one CompiledGuide are independent of each other.
class TokenGuide {
 public:
  virtual ~TokenGuide() = default;

  // Writes one bit for each token of the vocabulary, token t at bit t % 32 of words[t / 32]: 1 is
  // allowed. `words` has ceil(vocab_size / 32) words, all of which are written; the bits past the
  // vocabulary are 0. At least one bit is 1. EOS ids are allowed exactly where CanEnd().
  virtual void FillMask(std::span<uint32_t> words) = 0;
  // Takes the token that was drawn. False, and nothing changes, if the grammar does not allow it.
  // An EOS id is taken where CanEnd() and changes nothing.
  virtual bool Accept(int32_t token) = 0;
  // Whether the text so far is complete. It may be possible to continue it.
  virtual bool CanEnd() const = 0;
  // Tokens that suffice to complete the text from here, EOS not counted. 0 where CanEnd(), and
  // where a text that is cut here lacks nothing of a structure.
  virtual int64_t TokensToClose() const = 0;
  // From now on FillMask allows only tokens after which TokensToClose() <= `tokens_left`, the
  // tokens that may follow the one drawn next. If no token is such, it allows what the grammar
  // allows, and the text will be cut. Begins as no limit. A caller that starts with TokensToClose()
  // <= its max_tokens and sets max_tokens - 1, max_tokens - 2, ... before each FillMask gets a
  // complete text.
  virtual void SetBudget(int64_t tokens_left) = 0;
};

// A grammar compiled for one vocabulary. Immutable to its users; any number of threads may Start
// and use guides of it at once. Its guides keep it alive.
class CompiledGuide {
 public:
  virtual ~CompiledGuide() = default;
  // A guide at the beginning of the text.
  virtual std::unique_ptr<TokenGuide> Start() const = 0;
  // Memory held now, in bytes: tables, and masks kept for later rows (bounded by GuideLimits).
  virtual size_t bytes() const = 0;
};

}  // namespace quire
