// The bodies of the targets; CHECK is the oracle.
#include "tests/fuzz/targets/answer_targets.h"

#include <algorithm>
#include <iterator>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "kernels/check.h"
#include "server/answer_parts/answer_reader.h"
#include "server/tracing/trace_context.h"

namespace quire {
namespace {

constexpr const char* kReasoning[] = {nullptr, "deepseek_r1", "mistral", "seed_oss"};
constexpr const char* kCalls[] = {nullptr, "hermes", "mistral", "llama3_json"};
constexpr ReasoningStart kStarts[] = {ReasoningStart::kMayBegin, ReasoningStart::kBegun,
                                      ReasoningStart::kOver};

AnswerPlan PlanOf(uint8_t choice) {
  static const auto& tools =
      *new auto(std::make_shared<const ToolNames>(ToolNames{"get_weather", "get_time", "f"}));
  const char* const reasoning = kReasoning[choice % 4];
  const char* const calls = kCalls[choice / 4 % 4];
  return {.reasoning = reasoning == nullptr ? nullptr : FindReasoningFormat(reasoning),
          .start = kStarts[choice / 16 % std::size(kStarts)],
          .calls = calls == nullptr ? nullptr : FindCallFormat(calls),
          .tools = tools};
}

struct Answer {
  AnswerParts parts;
  uint32_t whole = 0;  // calls

  bool operator==(const Answer& other) const {
    const auto same = [](const ToolCallPart& a, const ToolCallPart& b) {
      return a.index == b.index && a.id == b.id && a.name == b.name && a.arguments == b.arguments;
    };
    return whole == other.whole && parts.text == other.parts.text &&
           parts.reasoning == other.parts.reasoning &&
           std::equal(parts.calls.begin(), parts.calls.end(), other.parts.calls.begin(),
                      other.parts.calls.end(), same);
  }
};

// The text comes `piece` bytes at a time, and what was found is taken after each.
Answer Read(const AnswerPlan& plan, std::string_view text, size_t piece) {
  AnswerReader reader(plan, 7);
  Answer answer;
  const auto take = [&] {
    AnswerParts parts = reader.Take();
    answer.parts.text += parts.text;
    answer.parts.reasoning += parts.reasoning;
    for (ToolCallPart& call : parts.calls) AppendCall(std::move(call), &answer.parts.calls);
  };
  for (size_t at = 0; at < text.size(); at += piece) {
    reader.Push(text.substr(at, piece));
    take();
  }
  reader.Finish("");
  take();
  CHECK(!reader.holds());
  answer.whole = reader.tally().tool_calls;
  return answer;
}

}  // namespace

void FuzzAnswer(std::string_view bytes) {
  if (bytes.empty()) return;
  const AnswerPlan plan = PlanOf(static_cast<uint8_t>(bytes[0]));
  const std::string_view text = bytes.substr(1);
  const Answer whole = Read(plan, text, text.size() + 1);
  for (const size_t piece : {1, 5}) CHECK(Read(plan, text, piece) == whole);
  CHECK(plan.reads() || whole.parts.text == text);
  CHECK(whole.whole <= whole.parts.calls.size());
  for (size_t i = 0; i < whole.parts.calls.size(); ++i) {
    const ToolCallPart& call = whole.parts.calls[i];
    CHECK_EQ(call.index, i);
    CHECK_EQ(call.id.size(), size_t{9});
    CHECK(plan.tools->contains(call.name));
  }
}

void FuzzTraceHeaders(std::string_view bytes) {
  if (const auto context = ParseTraceparent(bytes)) {
    CHECK(context->trace_id != TraceId{} && context->span_id != SpanId{});
    const auto again = ParseTraceparent(FormatTraceparent(*context));
    CHECK(again && again->trace_id == context->trace_id && again->span_id == context->span_id &&
          again->sampled == context->sampled);
  }
  const std::string state = BoundTracestate(bytes);
  CHECK(state.size() <= 512 && bytes.find(state) != std::string_view::npos);
  for (const char c : state) CHECK(c == '\t' || (c >= 0x20 && c < 0x7F));
}

}  // namespace quire
