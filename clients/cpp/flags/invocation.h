// Invocation: one command line of `quire`, parsed into plain values. What was not said stays unset,
// so that the server's defaults apply and are echoed by the server.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace quire::cli {

enum class Command { kNone, kGenerate, kTokenize, kDetokenize, kSession, kInfo, kAbort, kDrain };

// The words after a command that say what to send: the text (from stdin when absent) or token ids.
struct PromptFlags {
  std::optional<std::string> text;    // "-" also means stdin
  std::vector<uint32_t> token_ids;    // when given, there is no text
  bool chat = false;                  // the text is a user message, rendered with the chat template
  std::optional<std::string> system;  // a system message before it; implies chat
  bool no_special_tokens = false;     // leave out BOS and the like
};

struct SamplingFlags {
  std::optional<float> temperature, top_p, min_p;
  std::optional<float> repetition_penalty, presence_penalty, frequency_penalty;
  std::optional<uint32_t> top_k;
  std::optional<uint64_t> seed;
  std::vector<std::string> logit_bias;  // "ID=VALUE"
};

struct StopFlags {
  std::optional<uint32_t> max_tokens, min_tokens;
  std::vector<std::string> stop;
  std::vector<uint32_t> stop_token_ids;
  bool include_stop = false;
  bool ignore_eos = false;
};

struct GenerateFlags {
  PromptFlags prompt;
  SamplingFlags sampling;
  StopFlags stop;
  std::optional<std::string> request_id;
  std::optional<int32_t> priority;
  std::optional<std::string> session;         // made if there is none
  std::optional<uint32_t> expected_position;  // of the session, before the first turn
  bool no_prefix_cache = false;               // neither use nor leave anything there
  bool logprobs = false;                      // shown by --json
  bool print_ids = false;                     // token ids on stdout instead of text
  bool keep_special_tokens = false;           // special tokens stay in the text
  bool no_stream = false;                     // GenerateUnary: one message at the end
  bool stats = false;                         // speed to stderr
};

struct TokenizeFlags {
  PromptFlags prompt;
  bool offsets = false;
};

struct DetokenizeFlags {
  std::vector<uint32_t> token_ids;  // from stdin when empty
  bool keep_special_tokens = false;
};

// Of `quire session VERB`.
struct SessionFlags {
  std::string verb;                     // "create", "get", ... as typed
  std::optional<std::string> name;      // absent: the server makes one
  std::optional<std::string> new_name;  // of a fork; absent: likewise
  std::optional<uint32_t> position;     // of fork and truncate
  std::optional<double> ttl_seconds, idle_offload_after_seconds;
  std::optional<int32_t> retain_priority;
  std::string file;  // of export and import; "-": stdout, stdin
};

struct AbortFlags {
  std::vector<std::string> request_ids;
  bool all = false;
};

struct Invocation {
  Command command = Command::kNone;
  std::string server = "127.0.0.1:50051";  // host:port or unix:PATH
  double timeout_seconds = 0;              // of each RPC; 0: the server's default
  std::optional<std::string> model;
  bool json = false;  // machine-readable output

  GenerateFlags generate;
  TokenizeFlags tokenize;
  DetokenizeFlags detokenize;
  SessionFlags session;
  AbortFlags abort;
  bool exit_when_idle = false;  // drain
  bool undo = false;            // drain
};

// How a parse ended: with an invocation to run, or with an exit code and what to print before
// exiting.
struct ParsedLine {
  std::optional<Invocation> invocation;
  int exit_code = 0;  // 0 for --help and --version, kExitUsage for a mistake
  std::string out, err;
};

// `args` without the program's name.
ParsedLine ParseInvocation(const std::vector<std::string>& args);

}  // namespace quire::cli
