// Settings: everything that one load run does, as plain values. options.h fills it from a
// command line; a test fills what it needs and leaves the rest at its default.
#pragma once

#include <cstdint>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "clients/connect/endpoint.h"
#include "clients/load/values/run_record.h"

namespace quire::load {

// A number of tokens (or any other count), drawn anew for each request.
struct LengthSpec {
  enum class Kind { kFixed, kUniform, kNormal };
  Kind kind = Kind::kFixed;
  double a = 0;  // kFixed: the value; kUniform: the least; kNormal: the mean
  double b = 0;  // kUniform: the greatest, itself included; kNormal: the standard deviation
};

// Seconds (or milliseconds) drawn uniformly in [low, high].
struct Range {
  double low = 0, high = 0;
};

enum class Ramp { kNone, kLinear, kExponential };

// How requests arrive. A finite rate is an open loop: requests do not wait for replies. An infinite
// rate with max_concurrency is a closed loop; without it, all requests are sent at once.
struct ArrivalSettings {
  double request_rate = std::numeric_limits<double>::infinity();  // requests/s
  // Shape of the gamma distribution of gaps: 1 is Poisson, less is burstier, infinity is evenly
  // spaced.
  double burstiness = 1;
  int32_t max_concurrency = 0;  // requests in flight (conversations, if there are any); 0: any
  // Rate from ramp_start to ramp_end over the requests, instead of request_rate.
  Ramp ramp = Ramp::kNone;
  double ramp_start_rps = 0, ramp_end_rps = 0;
  // Closed loop: the last of max_concurrency slots opens after this long.
  double concurrency_ramp_seconds = 0;
  double trace_speed = 1;  // a trace's times are divided by it
};

// Whether the turns of a conversation are turns of a session of the server's: kAuto if it has any.
enum class SessionUse { kAuto, kOff, kOn };

// The requests themselves.
struct WorkloadSettings {
  std::string name = "custom";  // for the report: "W3"
  int32_t num_prompts = 0;      // requests, or conversations; 0: 1000, or what the duration holds
  double duration_seconds = 0;  // no request is planned after this; 0: no limit
  int32_t num_warmups = 0;      // requests sent before, eight at a time, and not counted
  uint64_t seed = 0;

  LengthSpec input_len{LengthSpec::Kind::kFixed, 1024, 0};
  LengthSpec output_len{LengthSpec::Kind::kFixed, 128, 0};
  std::string length_table;      // name of lengths.h's tables instead of the two above; "": none
  std::string trace_file;        // lengths and times from here; "": none
  int32_t trace_block = 512;     // tokens that one of a trace's hash_ids stands for
  std::string prompt_file;       // texts from here instead of random tokens; "": none
  bool chat = false;             // the prompt file's texts are user messages
  bool clip_to_context = false;  // shorten what does not fit the model instead of refusing to run

  int32_t prefix_len = 0;    // shared tokens before each prompt
  int32_t num_prefixes = 1;  // different shared prefixes

  // Conversations: a turn's prompt is the history with the received tokens, and new tokens; in a
  // session it is the new tokens alone.
  LengthSpec turns{LengthSpec::Kind::kFixed, 1, 0};
  LengthSpec turn_input_len{LengthSpec::Kind::kFixed, 256, 0};  // new tokens of later turns
  double think_seconds_median = 0;  // before each later turn, log-normal
  double think_sigma = 0;
  double fork_probability = 0;  // that a turn has a second answer asked of the same history
  std::string session_prefix;   // names of sessions begin so; "": histories are sent again

  std::vector<std::pair<int32_t, double>> priorities;  // priority and its weight; empty: all 0
  double deadline_share = 0;                           // of requests that have a deadline
  Range deadline_seconds;
  double cancel_share = 0;                                  // of requests cancelled by us
  LengthSpec cancel_after{LengthSpec::Kind::kFixed, 1, 0};  // once so many tokens came
  double slow_share = 0;                                    // of requests read slowly
  double slow_delay_seconds = 0.1;                          // before each read of theirs

  bool ignore_eos = false;
  bool text = true;                     // ask for text
  bool token_ids = true;                // ask for token ids
  double temperature = -1, top_p = -1;  // negative: the server's default
  int32_t top_k = -1;
};

enum class ProgressStyle { kNone, kLive, kLines };

struct Settings {
  connect::Endpoint endpoint;
  std::string model;              // "": the server's
  std::string metrics;            // host:port of its /metrics; "": not scraped
  int32_t channels = 0;           // connections; 0: enough for the streams
  double time_limit_seconds = 0;  // the run is ended then, whatever is in flight; 0: never

  ArrivalSettings arrival;
  WorkloadSettings workload;
  std::vector<double> sweep_rates;  // one run each, then growing by sweep_step until saturated
  double sweep_step = 1.25;
  SessionUse sessions = SessionUse::kAuto;
  GoodputLimits limits;

  bool detailed = false;
  ProgressStyle progress = ProgressStyle::kNone;
  std::vector<std::pair<std::string, std::string>> metadata;
  std::string command_line;
  std::string result_dir;       // "": only the text block on stdout
  std::string result_filename;  // of vLLM's JSON in it; "": made from date, rate and model
};

}  // namespace quire::load
