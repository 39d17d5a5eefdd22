// Invocation: one command line of `quire` as plain values. A flag that was not given stays unset,
// so that the server's defaults apply and are echoed by the server.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "clients/connect/settings.h"
#include "clients/cpp/flags/answer_flags.h"
#include "clients/cpp/flags/chat_flags.h"
#include "clients/cpp/flags/flush_flags.h"
#include "clients/cpp/flags/job_flags.h"
#include "clients/cpp/flags/key_flags.h"
#include "clients/cpp/flags/read_flags.h"
#include "clients/cpp/flags/structure_flags.h"
#include "clients/cpp/flags/trace_flags.h"

namespace quire::cli {

enum class Command {
  kNone,
  kGenerate,
  kAttach,
  kChat,
  kTokenize,
  kDetokenize,
  kScore,
  kEmbed,
  kBatch,
  kSession,
  kJob,
  kInfo,
  kHealth,
  kAbort,
  kDrain,
  kFlush,
  kTrace,
  kMemory,
  kKey
};

// The prompt: a text (from stdin when absent) or token ids.
struct PromptFlags {
  std::optional<std::string> text;    // "-" also means stdin
  std::vector<uint32_t> token_ids;    // when given, there is no text
  bool chat = false;                  // the text is a user message, rendered with the chat template
  std::optional<std::string> system;  // a system message before it; implies chat
  ChatFlags template_flags;           // more for the template; each implies chat
  bool special_tokens = true;         // add BOS and the like
};

struct SamplingFlags {
  // By the field's name in quire.v1.SamplingParams.
  std::map<std::string, std::optional<float>, std::less<>> numbers;
  std::map<std::string, std::optional<uint32_t>, std::less<>> counts;
  std::map<std::string, std::vector<uint32_t>, std::less<>> ids;
  std::optional<uint64_t> seed;
  std::vector<std::string> logit_bias;  // "ID=VALUE"
  std::vector<std::string> bad_words;   // "ID,ID"
  std::vector<std::string> logit_processors;
};

struct StopFlags {
  std::optional<uint32_t> max_tokens, min_tokens, loop_max_tokens, loop_min_repeats;
  std::vector<std::string> stop;
  std::vector<uint32_t> stop_token_ids;
  bool include_stop = false;
  bool ignore_eos = false;
};

struct GenerateFlags {
  PromptFlags prompt;
  SamplingFlags sampling;
  StopFlags stop;
  StructureFlags structure;
  AnswerFlags answer;
  std::optional<std::string> request_id;
  std::optional<double> detach_seconds;
  std::optional<int32_t> priority;
  std::optional<uint32_t> max_guesses;
  std::optional<std::string> session;         // created if the server has none of that name
  std::optional<uint32_t> expected_position;  // of the session, before the first turn
  bool prefix_cache = true;                   // read and fill the prefix cache
  std::optional<uint32_t> n, best_of;         // answers
  bool logprobs = false;                      // shown by --json, as the three below
  std::optional<uint32_t> top_logprobs, prompt_logprobs;
  std::vector<uint32_t> logprob_token_ids;
  bool processed_logprobs = false;
  bool print_ids = false;            // token ids on stdout instead of text
  bool keep_special_tokens = false;  // special tokens stay in the text
  bool stream = true;                // false: GenerateUnary, one message at the end
  bool stats = false;                // speed to stderr
  bool quiet = false;                // no line on stderr after a turn of a session
};

struct TokenizeFlags {
  PromptFlags prompt;
  bool offsets = false;
};

struct DetokenizeFlags {
  std::vector<uint32_t> token_ids;  // from stdin when empty
  bool keep_special_tokens = false;
};

// The flags of `quire session VERB`.
struct SessionFlags {
  std::string verb;                     // "create", "get", ... as typed
  std::optional<std::string> name;      // absent: the server chooses one
  std::optional<std::string> new_name;  // of a fork; absent: the server chooses one
  std::optional<uint32_t> position;     // of fork and truncate
  std::optional<double> ttl_seconds, idle_offload_after_seconds;
  std::optional<int32_t> retain_priority;
  std::string file;         // of export and import; "-": stdout, stdin
  std::string destination;  // of move: host:port or unix:PATH
};

struct AbortFlags {
  std::vector<std::string> request_ids;
  bool all = false;
};

struct Invocation {
  Command command = Command::kNone;
  connect::ConnectionFlags connection;
  double timeout_seconds = 0;  // of each RPC; 0: the server's default
  std::optional<std::string> model;
  bool json = false;  // machine-readable output

  GenerateFlags generate;                // of `quire chat` and `quire attach` too
  std::optional<uint32_t> attach_after;  // tokens
  TokenizeFlags tokenize;
  DetokenizeFlags detokenize;
  ReadFlags read;
  SessionFlags session;
  JobFlags job;
  std::string batch_file;  // "-": stdin
  AbortFlags abort;
  FlushFlags flush;
  TraceFlags trace;
  KeyFlags key;
  bool exit_when_idle = false;  // drain
  bool undo = false;            // drain
  bool watch = false;           // memory: a line a second
};

// The end of a parse: an invocation to run, or an exit code. `out` and `err` are printed in either
// case.
struct ParsedLine {
  std::optional<Invocation> invocation;
  int exit_code = 0;  // 0 for --help and --version, kExitUsage for a mistake
  std::string out, err;
};

// `args` without the program's name.
ParsedLine ParseInvocation(const std::vector<std::string>& args);

}  // namespace quire::cli
