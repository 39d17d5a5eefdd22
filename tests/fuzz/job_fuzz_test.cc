// Mutated lines, results and states of jobs.
// Covers server/jobs/job_line.cc, server/lines/openai_chat.cc, server/jobs/job_record.cc,
// server/jobs/job_state.cc
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "server/jobs/job_record.h"
#include "server/jobs/job_state.h"
#include "tests/fuzz/mutator.h"
#include "tests/fuzz/targets/job_targets.h"

namespace quire {
namespace {

TEST(JobFuzzTest, Line) {
  Mutator lines(
      {R"({"custom_id":"a","request":{"text":"hi","sampling":{"seed":"7","logit_bias":{"3":1}}}})",
       R"({"custom_id":"b","request":{"chat":{"messages":[{"role":"user","content":"x"}]}}})",
       R"({"request":{},"custom_id":""})",
       R"({"custom_id":"c","method":"POST","url":"/v1/chat/completions","body":{"messages":[
           {"role":"user","content":[{"type":"text","text":"x"}]},{"role":"assistant",
           "tool_calls":[{"id":"1","type":"function","function":{"name":"f","arguments":"{}"}}]}],
           "tools":[{"type":"function","function":{"name":"f"}}],"tool_choice":"auto","stop":["a"],
           "response_format":{"type":"json_schema","json_schema":{"schema":{"type":"null"}}}}})",
       R"({"custom_id":"d","method":"POST","url":"/v1/completions","body":{"prompt":[1,2],"seed":-1,
           "logit_bias":{"3":1},"logprobs":2,"temperature":1.5,"top_k":-1,"user":"u"}})"},
      {"\"", "{", "}", "[", "]", "null", "1e999", "\\ud800", "\xff", "custom_id", ":"}, 41);
  for (int i = 0; i < 20000; ++i) FuzzJobLine(lines.Next());
}

TEST(JobFuzzTest, Record) {
  Mutator records({EncodeJobRecord({.line = 3, .json = "{\"a\":1}"}, 40),
                   EncodeJobRecord({.line = 1, .failed = true, .json = ""}, 40)},
                  {std::string(4, '\0'), std::string(4, '\xFF'), "\1", "QRJA"}, 42);
  for (int i = 0; i < 50000; ++i) FuzzJobRecord(records.Next());
}

TEST(JobFuzzTest, State) {
  JobState state{.id = "night", .expires_after_seconds = 60, .lines = 3};
  state.caller.models = {"demo"};
  state.priority = -3;
  Mutator states({EncodeJobState(state), EncodeJobState({.id = "x"})},
                 {std::string(8, '\0'), std::string(4, '\xFF'), "\1", "QUIREJOB"}, 43);
  for (int i = 0; i < 50000; ++i) FuzzJobState(states.Next());
}

}  // namespace
}  // namespace quire
