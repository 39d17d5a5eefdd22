// One mask after the other.
#include "engine/masks/output_guide.h"

#include <algorithm>
#include <utility>

#include "kernels/check.h"
#include "kernels/sampling.h"

namespace quire {

OutputGuide::OutputGuide(RequestId id, std::shared_ptr<const CompiledGuide> compiled,
                         int32_t vocab_size)
    : id_(id),
      compiled_(std::move(compiled)),
      words_(static_cast<size_t>(MaskWords(vocab_size)), 0) {
  CHECK(compiled_ != nullptr);
  CHECK_GT(vocab_size, 0);
}

void OutputGuide::AskFirst(int64_t tokens_left) {
  token_ = kFirst;
  tokens_left_ = tokens_left;
}

void OutputGuide::AskAfter(int32_t token, int64_t tokens_left) {
  CHECK_GE(token, 0);
  token_ = token;
  tokens_left_ = tokens_left;
}

bool OutputGuide::CompletesWith(int32_t token) {
  return guide_->Accept(token) && guide_->TokensToClose() == 0;
}

void OutputGuide::Make() {
  if (guide_ == nullptr) guide_ = compiled_->Start();
  if (token_ != kFirst && !guide_->Accept(token_)) {
    verdict_ = Verdict::kRejected;
    return;
  }
  guide_->SetBudget(tokens_left_ - 1);  // that may follow the one drawn next
  guide_->FillMask(words_);
  const bool any = std::ranges::any_of(words_, [](uint32_t word) { return word != 0; });
  verdict_ = any ? Verdict::kGood : Verdict::kNoToken;
}

}  // namespace quire
