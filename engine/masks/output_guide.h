// OutputGuide: the guide of one request's output, with the mask of its next token. It has one owner
// at a time: the scheduler, while the mask is the one of the sequence's next draw, or the mask
// pool, which takes the token that was drawn and makes the mask of the one behind it. So the state
// of a grammar needs no lock, and lives through preemption and the death of workers: it knows the
// tokens that the scheduler knows.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "engine/grammar/token_guide.h"
#include "engine/values/request.h"

namespace quire {

class OutputGuide {
 public:
  // Of the last Make.
  enum class Verdict : uint8_t {
    kGood,      // it has a token
    kNoToken,   // it has none: the text is complete, and the model has no end token
    kRejected,  // the guide did not accept the token that was drawn: a fault of ours
  };

  // `compiled` is not null; masks have a bit for each of `vocab_size` tokens.
  OutputGuide(RequestId id, std::shared_ptr<const CompiledGuide> compiled, int32_t vocab_size);

  RequestId id() const { return id_; }

  // --- The scheduler.
  // Say which mask Make is to make: that of the first token, or of the one behind `token`. The
  // output can have `tokens_left` > 0 tokens more.
  void AskFirst(int64_t tokens_left);
  void AskAfter(int32_t token, int64_t tokens_left);
  std::span<const uint32_t> mask() const { return words_; }  // [MaskWords(vocab_size)]
  Verdict verdict() const { return verdict_; }
  // Takes `token`, drawn with this mask, as the output's last, and nothing can be asked afterwards.
  // True if the output lacks nothing of its structure.
  bool CompletesWith(int32_t token);

  // --- The mask pool. Takes as long as the guide does: microseconds for most grammars.
  void Make();

 private:
  static constexpr int32_t kFirst = -1;

  const RequestId id_;
  const std::shared_ptr<const CompiledGuide> compiled_;
  std::unique_ptr<TokenGuide> guide_;  // from the first Make on
  std::vector<uint32_t> words_;
  int32_t token_ = kFirst;
  int64_t tokens_left_ = 0;
  Verdict verdict_ = Verdict::kGood;
};

}  // namespace quire
