// ReasoningGuide: lets a model reason before an answer that follows a grammar, and bounds how long.
// Immutable, any thread; its guides belong to one row each.
#pragma once

#include <cstdint>
#include <limits>
#include <memory>

#include "engine/grammar/end_marks.h"
#include "engine/grammar/token_guide.h"

namespace quire {

struct ReasoningPlan {
  bool begun = false;  // the prompt has the begin marker; else the output may begin with it
  // Tokens between the markers. After the last one that it may have, the reasoning is made to end.
  int64_t min_tokens = 0, max_tokens = std::numeric_limits<int64_t>::max();
};

class ReasoningGuide final : public CompiledGuide {
 public:
  // All is allowed in the reasoning but, before min_tokens, what ends it. The answer follows
  // `answer`, which is that of the same vocabulary; null: it is free. With an answer to follow, no
  // token goes beyond the end marker, and none ends the output before it.
  ReasoningGuide(std::shared_ptr<const EndMarks> marks, const ReasoningPlan& plan,
                 std::shared_ptr<const CompiledGuide> answer);

  std::unique_ptr<TokenGuide> Start() const override;
  size_t bytes() const override;

 private:
  const std::shared_ptr<const EndMarks> marks_;
  const ReasoningPlan plan_;
  const std::shared_ptr<const CompiledGuide> answer_;
};

}  // namespace quire
