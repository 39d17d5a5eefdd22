// The server checks the ranges of the sampling parameters and refuses values outside; the help
// texts here repeat those ranges. Rows point into the Invocation, which outlives the Command.
#include "clients/cpp/flags/prompt_flags.h"

#include <algorithm>
#include <functional>
#include <map>
#include <string>
#include <utility>

namespace quire::cli {
namespace {

using flags::Flag;
using Rows = std::vector<Flag>;

constexpr std::string_view kPrompt = "Prompt";
constexpr std::string_view kIdentity = "Session and identity";
constexpr std::string_view kOutput = "Output";
constexpr std::string_view kSampling = "Sampling";
constexpr std::string_view kStop = "Where to stop";
constexpr std::string_view kServers = "the default of the model or the server";

void Append(Rows more, Rows* rows) {
  for (Flag& row : more) rows->push_back(std::move(row));
}

Flag TextRow(PromptFlags* flags) {
  return {.name = "text",
          .group = kPrompt,
          .help = "the prompt; without it, or with '-', read from stdin",
          .target = &flags->text,
          .placeholder = "TEXT"};
}

Rows PromptRows(PromptFlags* flags) {
  Rows rows = {
      {.name = "chat",
       .group = kPrompt,
       .help = "TEXT is a user message for the model's chat template",
       .target = &flags->chat},
      {.name = "system",
       .group = kPrompt,
       .help = "a system message before TEXT; implies --chat",
       .target = &flags->system,
       .aliases = "system-prompt|sys"},
      {.name = "special-tokens",
       .group = kPrompt,
       .help = "add BOS and the model's other special tokens to TEXT",
       .target = &flags->special_tokens},
  };
  Append(OnePromptRows(&flags->template_flags), &rows);
  Append(TemplateRows(&flags->template_flags), &rows);
  return rows;
}

// A row for the field of quire.v1.SamplingParams of this name.
template <typename T>
Flag FieldRow(std::map<std::string, T, std::less<>>* fields, std::string_view flag,
              std::string_view help) {
  std::string field(flag);
  std::ranges::replace(field, '-', '_');
  return {.name = flag,
          .group = kSampling,
          .help = help,
          .target = &(*fields)[field],
          .unset = kServers};
}

Flag ShareRow(SamplingFlags* flags, std::string_view flag, std::string_view help) {
  Flag row = FieldRow(&flags->numbers, flag, help);
  row.unit = flags::Unit::kShare;
  return row;
}

Flag IdsRow(SamplingFlags* flags, std::string_view flag, std::string_view help) {
  Flag row = FieldRow(&flags->ids, flag, help);
  row.placeholder = "1,2,3";
  row.unset = {};
  return row;
}

Rows FilterRows(SamplingFlags* flags) {
  return {
      FieldRow(&flags->counts, "top-k", "keep the k likeliest tokens; 0 keeps all"),
      ShareRow(flags, "top-p",
               "keep the likeliest tokens until their probabilities sum to this; above 0, to 1"),
      ShareRow(flags, "min-p",
               "drop tokens less likely than this share of the likeliest; from 0 to 1"),
      ShareRow(
          flags, "typical-p",
          "keep the tokens of the most typical surprise until their probabilities sum to this; "
          "above 0, to 1"),
      FieldRow(&flags->numbers, "top-n-sigma",
               "drop logits more than this many standard deviations below the largest; from 0 "
               "(off) to 100"),
      ShareRow(flags, "xtc-probability",
               "how often the likely tokens but the last are excluded; from 0 to 1"),
      ShareRow(flags, "xtc-threshold", "what probability is likely; above 0, to 0.5"),
  };
}

Rows PenaltyRows(SamplingFlags* flags) {
  Rows rows = {
      FieldRow(&flags->numbers, "repetition-penalty",
               "penalizes tokens of prompt and output; from 0.01 to 10, 1 is off"),
      FieldRow(&flags->numbers, "presence-penalty",
               "penalizes tokens of the output; from -2 to 2, 0 is off"),
      FieldRow(&flags->numbers, "frequency-penalty",
               "penalizes output tokens by their count; from -2 to 2, 0 is off"),
      FieldRow(&flags->numbers, "dry-multiplier",
               "penalizes tokens that prolong a repetition; from 0 (off) to 100"),
      FieldRow(&flags->numbers, "dry-base",
               "the penalty grows by this factor with each repeated token; from 1 to 4"),
      FieldRow(&flags->counts, "dry-allowed-length",
               "repeated tokens from which on the penalty counts; from 1 to 50"),
      FieldRow(&flags->counts, "dry-last-n",
               "search repetitions in the last so many tokens; 0: in all"),
      IdsRow(flags, "dry-breaker-ids", "repetitions do not reach over these token ids"),
  };
  rows[0].aliases = "repeat-penalty";
  return rows;
}

Rows SamplingRows(SamplingFlags* flags) {
  Rows rows = {
      FieldRow(&flags->numbers, "temperature", "0 is greedy; from 0 to 100"),
      FieldRow(&flags->numbers, "dynatemp-range",
               "let the temperature vary by this much with the entropy; from 0 (off) to it"),
      FieldRow(&flags->numbers, "dynatemp-exponent", "of the entropy; from 0 to 10"),
  };
  rows[0].aliases = "temp";
  Append(FilterRows(flags), &rows);
  Append(PenaltyRows(flags), &rows);
  Append(
      {
          {.name = "seed",
           .group = kSampling,
           .help = "a request with the same seed gets the same tokens, in any batch",
           .target = &flags->seed,
           .unset = "drawn by the server"},
          {.name = "logit-bias",
           .group = kSampling,
           .help = "added to a token's logit, from -100 to 100; repeatable",
           .target = &flags->logit_bias,
           .placeholder = "ID=VALUE"},
          IdsRow(flags, "allowed-token-ids", "draw only these token ids"),
          IdsRow(flags, "banned-token-ids", "never draw these token ids"),
          {.name = "bad-word-ids",
           .group = kSampling,
           .help = "a sequence of token ids that the output never holds; repeatable",
           .target = &flags->bad_words,
           .placeholder = "1,2,3"},
          {.name = "logit-processor",
           .group = kSampling,
           .help = "biases and bans that the server has under this name; repeatable",
           .target = &flags->logit_processors,
           .placeholder = "NAME"},
      },
      &rows);
  return rows;
}

Rows StopRows(StopFlags* flags) {
  return {
      {.name = "max-tokens",
       .group = kStop,
       .help = "maximum number of output tokens",
       .target = &flags->max_tokens,
       .unit = flags::Unit::kCount,
       .aliases = "max-new-tokens|n-predict|predict",
       .short_name = "n",
       .unset = "the rest of the context"},
      {.name = "min-tokens",
       .group = kStop,
       .help = "minimum number of output tokens",
       .target = &flags->min_tokens,
       .unit = flags::Unit::kCount,
       .unset = "0"},
      {.name = "stop",
       .group = kStop,
       .help = "end when the output contains this; repeatable",
       .target = &flags->stop},
      {.name = "stop-token-ids",
       .group = kStop,
       .help = "end at one of these ids",
       .target = &flags->stop_token_ids,
       .placeholder = "1,2,3"},
      {.name = "include-stop",
       .group = kStop,
       .help = "keep the matched stop string in the text",
       .target = &flags->include_stop},
      {.name = "ignore-eos",
       .group = kStop,
       .help = "do not end at the model's own end tokens",
       .target = &flags->ignore_eos},
      {.name = "loop-max-tokens",
       .group = kStop,
       .help = "end when the output repeats at most this many tokens over and over; to 256",
       .target = &flags->loop_max_tokens,
       .unset = "off"},
      {.name = "loop-min-repeats",
       .group = kStop,
       .help = "how often they stand one after the other then; from 2 to 100",
       .target = &flags->loop_min_repeats,
       .unset = "8"},
  };
}

Rows ScoreRows(GenerateFlags* flags) {
  return {
      {.name = "logprobs",
       .group = kOutput,
       .help = "the log probability of each token, in --json",
       .target = &flags->logprobs},
      {.name = "top-logprobs",
       .group = kOutput,
       .help = "the rank of each token and this many of the most likely, in --json; to 20",
       .target = &flags->top_logprobs,
       .unset = "none"},
      {.name = "logprob-token-ids",
       .group = kOutput,
       .help = "the log probabilities of these ids beside each token, in --json; to 32 ids",
       .target = &flags->logprob_token_ids,
       .placeholder = "1,2,3"},
      {.name = "processed-logprobs",
       .group = kOutput,
       .help = "these are of the distribution drawn from, after penalties and filters",
       .target = &flags->processed_logprobs},
      {.name = "prompt-logprobs",
       .group = kOutput,
       .help = "the same of the prompt's tokens, in --json; to 20",
       .target = &flags->prompt_logprobs,
       .unset = "none"},
  };
}

Rows AnswerRows(GenerateFlags* flags) {
  return {
      {.name = "answers",
       .group = kSampling,
       .help = "answers to the prompt, printed whole, one after the other; from 1 to 128",
       .target = &flags->n,
       .unit = flags::Unit::kCount,
       .unset = "1"},
      {.name = "best-of",
       .group = kSampling,
       .help = "draw so many answers, and return the likeliest --answers of them",
       .target = &flags->best_of,
       .unit = flags::Unit::kCount,
       .unset = "--answers"},
      {.name = "max-guesses",
       .group = kSampling,
       .help = "tokens that a step guesses ahead at most; the output is the same with any",
       .target = &flags->max_guesses,
       .unit = flags::Unit::kCount,
       .unset = "--speculate of the server"},
  };
}

Rows DetachRows(GenerateFlags* flags) {
  return {{.name = "detach-seconds",
           .group = kIdentity,
           .help = "if the connection is lost, the request goes on for so long, and so does the "
                   "output once there is a connection again",
           .target = &flags->detach_seconds,
           .unit = flags::Unit::kSeconds,
           .unset = "0"}};
}

// The output: how it is drawn, where it ends, which structure it follows.
Rows OutputRows(GenerateFlags* flags) {
  Rows rows = SamplingRows(&flags->sampling);
  Append(StopRows(&flags->stop), &rows);
  Append(StructureRows(&flags->structure), &rows);
  Append(AnswerRows(&flags->answer), &rows);
  return rows;
}

}  // namespace

flags::Command GenerateCommand(Invocation* line) {
  GenerateFlags* flags = &line->generate;
  Rows rows = PromptRows(&flags->prompt);
  Append(
      {
          {.name = "token-ids",
           .group = kPrompt,
           .help = "the prompt as token ids, instead of TEXT",
           .target = &flags->prompt.token_ids,
           .placeholder = "1,2,3"},
          {.name = "session",
           .group = kIdentity,
           .help = "run as a turn of this session, which is created if missing; without TEXT "
                   "each line of stdin is a turn",
           .target = &flags->session,
           .placeholder = "NAME"},
          {.name = "expected-position",
           .group = kIdentity,
           .help = "fail unless the session has this many tokens",
           .target = &flags->expected_position,
           .placeholder = "TOKENS"},
          {.name = "prefix-cache",
           .group = kIdentity,
           .help = "read from the prefix cache and add to it; always on with --session",
           .target = &flags->prefix_cache},
          {.name = "request-id",
           .group = kIdentity,
           .help = "a name for `quire abort` and `quire attach`",
           .target = &flags->request_id,
           .placeholder = "ID",
           .unset = "chosen by the server"},
          {.name = "priority",
           .group = kIdentity,
           .help = "higher runs first; from -100 to 100",
           .target = &flags->priority,
           .unset = "0"},
          {.name = "stream",
           .group = kOutput,
           .help = "print tokens as they arrive, not the whole answer at its end",
           .target = &flags->stream},
          {.name = "print-ids",
           .group = kOutput,
           .help = "print token ids instead of text",
           .target = &flags->print_ids},
          {.name = "keep-special-tokens",
           .group = kOutput,
           .help = "leave special tokens in the text",
           .target = &flags->keep_special_tokens},
          {.name = "stats",
           .group = kOutput,
           .help = "token counts, time to first token and tokens per second, on stderr",
           .target = &flags->stats},
          {.name = "quiet",
           .group = kOutput,
           .help = "no line on stderr about the session's KV after an answer",
           .target = &flags->quiet},
      },
      &rows);
  Append(DetachRows(flags), &rows);
  Append(ScoreRows(flags), &rows);
  Append(OutputRows(flags), &rows);
  Append(AnswerRows(flags), &rows);
  return {.name = "generate",
          .help = "Complete a text, a chat message or token ids.",
          .flags = std::move(rows),
          .positionals = {TextRow(&flags->prompt)},
          .takes_prose = true};
}

flags::Command AttachCommand(Invocation* line) {
  GenerateFlags* flags = &line->generate;
  return {.name = "attach",
          .help = "Print the rest of a request that was sent with --detach-seconds.",
          .flags = {{.name = "after",
                     .group = kOutput,
                     .help = "leave out so many tokens at the begin: those that you have",
                     .target = &line->attach_after,
                     .placeholder = "TOKENS",
                     .unset = "0"},
                    {.name = "print-ids",
                     .group = kOutput,
                     .help = "print token ids instead of text",
                     .target = &flags->print_ids},
                    {.name = "show-reasoning",
                     .group = kOutput,
                     .help = "print the model's reasoning too, before the answer",
                     .target = &flags->answer.show_reasoning},
                    {.name = "stats",
                     .group = kOutput,
                     .help = "token counts, time to first token and tokens per second, on stderr",
                     .target = &flags->stats}},
          .positionals = {{.name = "id",
                           .group = kIdentity,
                           .help = "of the request",
                           .target = &flags->request_id,
                           .placeholder = "ID",
                           .required = true}}};
}

flags::Command ChatCommand(Invocation* line) {
  GenerateFlags* flags = &line->generate;
  Rows rows = {
      {.name = "session",
       .group = kIdentity,
       .help = "continue this session, or create it; the server keeps its KV",
       .target = &flags->session,
       .placeholder = "NAME",
       .unset = "none"},
      {.name = "system",
       .group = kIdentity,
       .help = "a system message at the beginning",
       .target = &flags->prompt.system,
       .aliases = "system-prompt|sys",
       .unset = "none"},
      {.name = "priority",
       .group = kIdentity,
       .help = "higher runs first; from -100 to 100",
       .target = &flags->priority,
       .unset = "0"},
      {.name = "quiet",
       .group = kOutput,
       .help = "no line on stderr about the session's KV after an answer",
       .target = &flags->quiet},
      {.name = "stats",
       .group = kOutput,
       .help = "token counts, time to first token and tokens per second, on stderr",
       .target = &flags->stats},
  };
  Append(TemplateRows(&flags->prompt.template_flags), &rows);
  Append(OutputRows(flags), &rows);
  return {.name = "chat",
          .help = "Chat with the model: ctrl-C ends an answer, ctrl-D the chat; /help lists more.",
          .flags = std::move(rows),
          .takes_prose = true};
}

flags::Command TokenizeCommand(Invocation* line) {
  Rows rows = PromptRows(&line->tokenize.prompt);
  rows.push_back({.name = "offsets",
                  .group = kOutput,
                  .help = "one line for each token: id, first byte, end byte (exclusive)",
                  .target = &line->tokenize.offsets});
  return {.name = "tokenize",
          .help = "Print the token ids of a text.",
          .flags = std::move(rows),
          .positionals = {TextRow(&line->tokenize.prompt)},
          .takes_prose = true};
}

flags::Command DetokenizeCommand(Invocation* line) {
  return {.name = "detokenize",
          .help = "Print the text of token ids.",
          .flags = {{.name = "keep-special-tokens",
                     .group = kOutput,
                     .help = "leave special tokens in the text",
                     .target = &line->detokenize.keep_special_tokens}},
          .positionals = {{.name = "ids",
                           .group = kPrompt,
                           .help = "token ids; none: read from stdin",
                           .target = &line->detokenize.token_ids}}};
}

}  // namespace quire::cli
