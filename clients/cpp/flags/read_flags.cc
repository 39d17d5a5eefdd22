// Both commands take the same items.
#include "clients/cpp/flags/read_flags.h"

#include <string_view>
#include <utility>

namespace quire::cli {
namespace {

constexpr std::string_view kItems = "Items";
constexpr std::string_view kOutput = "Output";

flags::Command ItemsCommand(ReadFlags* flags, std::string_view name, std::string_view help) {
  return {.name = name,
          .help = help,
          .flags = {{.name = "token-ids",
                     .group = kItems,
                     .help = "one item as token ids, instead of TEXT",
                     .target = &flags->token_ids,
                     .placeholder = "1,2,3"},
                    {.name = "special-tokens",
                     .group = kItems,
                     .help = "add BOS and the model's other special tokens to TEXT",
                     .target = &flags->special_tokens},
                    {.name = "priority",
                     .group = kItems,
                     .help = "higher runs first; from -100 to 100",
                     .target = &flags->priority,
                     .unset = "0"}},
          .positionals = {{.name = "texts",
                           .group = kItems,
                           .help = "an item each; none: each line of stdin is one",
                           .target = &flags->texts,
                           .placeholder = "TEXT"}}};
}

}  // namespace

flags::Command ScoreCommand(ReadFlags* flags) {
  flags::Command command =
      ItemsCommand(flags, "score", "Print the log probability of texts: its sum and the tokens.");
  command.flags.push_back({.name = "top-logprobs",
                           .group = kOutput,
                           .help = "the most likely tokens beside each token, in --json; to 20",
                           .target = &flags->top_logprobs,
                           .unset = "0"});
  return command;
}

flags::Command EmbedCommand(ReadFlags* flags) {
  flags::Command command =
      ItemsCommand(flags, "embed", "Print a vector for each text, from the model's hidden states.");
  command.flags.push_back({.name = "pooling",
                           .group = kOutput,
                           .help = "the hidden state of the last token, or the mean of all",
                           .target = &flags->pooling,
                           .choices = "last|mean"});
  command.flags.push_back({.name = "normalize",
                           .group = kOutput,
                           .help = "divide the vector by its Euclidean norm",
                           .target = &flags->normalize});
  return command;
}

}  // namespace quire::cli
