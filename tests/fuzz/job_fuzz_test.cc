// Mutated lines, results and states of jobs. Checksums would refuse nearly every change, so states
// are read a second time with theirs made right.
// Covers server/jobs/job_line.cc, server/lines/openai_chat.cc, server/jobs/job_record.cc,
// server/jobs/job_state.cc
#define XXH_INLINE_ALL
#include <xxhash.h>

#include <string>
#include <vector>

#include "engine/base/json.h"
#include "gtest/gtest.h"
#include "kernels/check.h"
#include "server/call/status_codec.h"
#include "server/jobs/job_line.h"
#include "server/jobs/job_record.h"
#include "server/jobs/job_state.h"
#include "server/session/little_endian.h"
#include "tests/fuzz/mutator.h"

namespace quire {
namespace {

// A fault names a field, and whatever was read, its result is JSON with the line's number.
void FuzzLine(std::string_view bytes) {
  RequestLine line;
  const absl::Status status = ReadJobLine({.number = 7, .text = std::string(bytes)}, &line);
  CHECK(status.ok() || (absl::IsInvalidArgument(status) && !FieldOf(status).empty()));
  const LineResult result = WriteLineResult(line, InvalidField("line", "x"), nullptr, 1 << 20);
  const auto failed = ParseJson(result.json, "result");
  CHECK(failed.ok() && (*failed)["custom_id"] == line.custom_id);
  CHECK(line.openai ? (*failed)["id"] == "batch_req_7" : (*failed)["line"] == 7);
}

// A record that is read is the one that was written there.
void FuzzRecord(std::string_view bytes) {
  const auto record = ReadJobRecord(bytes, 40);
  if (!record.ok()) {
    CHECK(absl::IsOutOfRange(record.status()) || absl::IsDataLoss(record.status()));
    return;
  }
  const std::string again = EncodeJobRecord(*record, 40);
  CHECK(again == bytes.substr(0, again.size()));
}

void FuzzState(std::string bytes) {
  for (const bool sealed : {false, true}) {
    if (sealed && bytes.size() >= 8) {
      bytes.resize(bytes.size() - 8);
      PutInt(static_cast<uint64_t>(XXH3_64bits(bytes.data(), bytes.size())), &bytes);
    }
    const auto state = ReadJobState(bytes);
    if (!state.ok()) {
      CHECK(absl::IsDataLoss(state.status()));
      continue;
    }
    const std::string written = EncodeJobState(*state);
    CHECK(EncodeJobState(*ReadJobState(written)) == written);
  }
}

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
  for (int i = 0; i < 20000; ++i) FuzzLine(lines.Next());
}

TEST(JobFuzzTest, Record) {
  Mutator records({EncodeJobRecord({.line = 3, .json = "{\"a\":1}"}, 40),
                   EncodeJobRecord({.line = 1, .failed = true, .json = ""}, 40)},
                  {std::string(4, '\0'), std::string(4, '\xFF'), "\1", "QRJA"}, 42);
  for (int i = 0; i < 50000; ++i) FuzzRecord(records.Next());
}

TEST(JobFuzzTest, State) {
  JobState state{.id = "night", .expires_after_seconds = 60, .lines = 3};
  state.caller.models = {"demo"};
  state.priority = -3;
  Mutator states({EncodeJobState(state), EncodeJobState({.id = "x"})},
                 {std::string(8, '\0'), std::string(4, '\xFF'), "\1", "QUIREJOB"}, 43);
  for (int i = 0; i < 50000; ++i) FuzzState(std::string(states.Next()));
}

}  // namespace
}  // namespace quire
