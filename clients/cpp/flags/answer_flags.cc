// One row for each flag.
#include "clients/cpp/flags/answer_flags.h"

namespace quire::cli {

std::vector<flags::Flag> AnswerRows(AnswerFlags* flags) {
  constexpr char kGroup[] = "Reasoning of a chat";
  return {
      {.name = "show-reasoning",
       .group = kGroup,
       .help = "print the reasoning, and a line of dashes, before the answer",
       .target = &flags->show_reasoning},
      {.name = "split-reasoning",
       .group = kGroup,
       .help = "tell reasoning from the answer, where the server knows how the model marks it",
       .target = &flags->split_reasoning},
      {.name = "max-reasoning-tokens",
       .group = kGroup,
       .help = "after so many tokens of reasoning it is made to end",
       .target = &flags->max_tokens,
       .unset = "no bound"},
      {.name = "min-reasoning-tokens",
       .group = kGroup,
       .help = "before so many tokens of reasoning it cannot end",
       .target = &flags->min_tokens,
       .unset = "no bound"},
  };
}

}  // namespace quire::cli
