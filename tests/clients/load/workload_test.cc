// Workload: equal requests for equal seeds, with the configured shares, prefixes and turns.
#include "clients/load/workload/workload.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <map>
#include <set>
#include <string>
#include <vector>

namespace quire::load {
namespace {

using testing::HasSubstr;

LengthSpec Fixed(double value) { return {LengthSpec::Kind::kFixed, value, 0}; }
LengthSpec Uniform(double low, double high) { return {LengthSpec::Kind::kUniform, low, high}; }

ModelFacts Model() {
  return {.name = "toy", .vocab_size = 300, .max_model_len = 1000, .eos_token_ids = {7}};
}

WorkloadSettings Small() {
  WorkloadSettings settings;
  settings.num_prompts = 400;
  settings.input_len = Uniform(10, 20);
  settings.output_len = Uniform(5, 9);
  settings.seed = 12;
  return settings;
}

std::unique_ptr<Workload> Make(const WorkloadSettings& settings,
                               const ArrivalSettings& arrival = {}) {
  auto workload = Workload::Create(settings, arrival, Model());
  EXPECT_TRUE(workload.ok()) << workload.status();
  return workload.ok() ? *std::move(workload) : nullptr;
}

std::string Refusal(const WorkloadSettings& settings) {
  return std::string(Workload::Create(settings, {}, Model()).status().message());
}

// The tokens a prompt begins with.
std::vector<uint32_t> Head(const PlannedRequest& request, size_t length) {
  return {request.token_ids.begin(), request.token_ids.begin() + static_cast<ptrdiff_t>(length)};
}

TEST(WorkloadTest, ASeedIsAWorkloadInWhateverOrder) {
  const auto one = Make(Small()), two = Make(Small());
  for (int64_t i = 399; i >= 0; --i) two->Request(i);
  for (int64_t i = 0; i < 400; ++i) {
    const PlannedRequest a = one->Request(i), b = two->Request(i);
    EXPECT_EQ(a.token_ids, b.token_ids);
    EXPECT_EQ(a.max_tokens, b.max_tokens);
    EXPECT_EQ(a.sampling_seed, b.sampling_seed);
  }
  WorkloadSettings other = Small();
  other.seed = 13;
  EXPECT_NE(one->Request(0).token_ids, Make(other)->Request(0).token_ids);
}

TEST(WorkloadTest, PromptsAreUniformWithoutTheEndToken) {
  const auto workload = Make(Small());
  std::map<uint32_t, int> counts;
  int total = 0;
  for (int64_t i = 0; i < 400; ++i) {
    const PlannedRequest request = workload->Request(i);
    EXPECT_GE(request.token_ids.size(), 10u);
    EXPECT_LE(request.token_ids.size(), 20u);
    EXPECT_GE(request.max_tokens, 5);
    EXPECT_LE(request.max_tokens, 9);
    for (const uint32_t id : request.token_ids) {
      ASSERT_LT(id, 300u);
      ++counts[id];
      ++total;
    }
  }
  EXPECT_EQ(counts.count(7), 0u);
  EXPECT_EQ(counts.size(), 299u);
  // Chi-squared with 298 degrees of freedom: mean 298, deviation 24.4.
  const double expected = total / 299.0;
  double chi = 0;
  for (const auto& [id, count] : counts) chi += (count - expected) * (count - expected) / expected;
  EXPECT_NEAR(chi, 298, 5 * 24.4);
}

TEST(WorkloadTest, SharedPrefixesAreSharedEvenlyAndShuffled) {
  WorkloadSettings settings = Small();
  settings.prefix_len = 32;
  settings.num_prefixes = 8;
  const auto workload = Make(settings);
  std::map<std::vector<uint32_t>, std::vector<int64_t>> groups;
  std::set<std::vector<uint32_t>> tails;
  for (int64_t i = 0; i < 400; ++i) {
    const PlannedRequest request = workload->Request(i);
    EXPECT_GE(request.token_ids.size(), 42u);
    groups[Head(request, 32)].push_back(i);
    tails.insert({request.token_ids.begin() + 32, request.token_ids.end()});
  }
  EXPECT_EQ(groups.size(), 8u);
  EXPECT_EQ(tails.size(), 400u);
  for (const auto& [prefix, members] : groups) {
    EXPECT_EQ(members.size(), 50u);
    std::set<int64_t> distances;
    for (size_t i = 1; i < members.size(); ++i) distances.insert(members[i] - members[i - 1]);
    EXPECT_GT(distances.size(), 3u);  // no round-robin
  }
}

TEST(WorkloadTest, TraitsHaveTheirShares) {
  WorkloadSettings settings = Small();
  settings.num_prompts = 4000;
  settings.priorities = {{0, 3}, {10, 1}};
  settings.deadline_share = 0.5;
  settings.deadline_seconds = {2, 4};
  settings.cancel_share = 0.1;
  settings.cancel_after = Uniform(2, 4);
  settings.slow_share = 0.25;
  const auto workload = Make(settings);
  int high = 0, deadlines = 0, cancels = 0, slow = 0;
  for (int64_t i = 0; i < 4000; ++i) {
    const PlannedRequest request = workload->Request(i);
    high += request.priority == 10;
    slow += request.slow_reader;
    if (request.deadline_seconds > 0) {
      ++deadlines;
      EXPECT_GE(request.deadline_seconds, 2);
      EXPECT_LE(request.deadline_seconds, 4);
    }
    if (request.cancel_after > 0) {
      ++cancels;
      EXPECT_GE(request.cancel_after, 2);
      EXPECT_LE(request.cancel_after, 4);
    }
  }
  // Five deviations of the binomial distribution.
  EXPECT_NEAR(high, 1000, 137);
  EXPECT_NEAR(deadlines, 2000, 158);
  EXPECT_NEAR(cancels, 400, 95);
  EXPECT_NEAR(slow, 1000, 137);
  // A trait leaves the prompt alone.
  EXPECT_EQ(workload->Request(3).token_ids, Make(Small())->Request(3).token_ids);
}

TEST(WorkloadTest, WarmupIsOtherRequestsWithoutTraits) {
  WorkloadSettings settings = Small();
  settings.cancel_share = 1;
  const auto workload = Make(settings);
  EXPECT_TRUE(workload->Warmup(0).warmup);
  EXPECT_EQ(workload->Warmup(0).cancel_after, 0);
  EXPECT_NE(workload->Warmup(0).token_ids, workload->Request(0).token_ids);
}

TEST(WorkloadTest, ATurnSendsHistoryAnswerAndNewTokens) {
  WorkloadSettings settings = Small();
  settings.turns = Fixed(3);
  settings.turn_input_len = Fixed(6);
  settings.think_seconds_median = 2;
  const auto workload = Make(settings);
  const PlannedRequest first = workload->Request(5);
  EXPECT_EQ(first.conversation, 5);
  EXPECT_EQ(first.turns, 3);
  const std::vector<uint32_t> answer = {1, 2, 3};
  const auto second = workload->NextTurns(first, answer, 1'000'000'000);
  ASSERT_EQ(second.size(), 1u);
  EXPECT_EQ(second[0].turn, 1);
  EXPECT_EQ(second[0].conversation, 5);
  EXPECT_EQ(second[0].due_ns, 3'000'000'000);  // no sigma: the median
  ASSERT_EQ(second[0].token_ids.size(), first.token_ids.size() + 3 + 6);
  EXPECT_EQ(Head(second[0], first.token_ids.size()), first.token_ids);
  EXPECT_EQ(second[0].token_ids[first.token_ids.size() + 1], 2u);
  // The same in another run, after any other requests.
  const auto again = Make(settings)->NextTurns(first, answer, 1'000'000'000);
  EXPECT_EQ(again[0].token_ids, second[0].token_ids);
  const auto third = workload->NextTurns(second[0], answer, 0);
  ASSERT_EQ(third.size(), 1u);
  EXPECT_TRUE(workload->NextTurns(third[0], answer, 0).empty());
}

TEST(WorkloadTest, AForkSharesHistoryOnly) {
  WorkloadSettings settings = Small();
  settings.turns = Fixed(2);
  settings.fork_probability = 1;
  const auto workload = Make(settings);
  const PlannedRequest first = workload->Request(0);
  const auto next = workload->NextTurns(first, {9, 9}, 0);
  ASSERT_EQ(next.size(), 2u);
  const size_t shared = first.token_ids.size() + 2;
  EXPECT_EQ(Head(next[0], shared), Head(next[1], shared));
  EXPECT_NE(next[0].token_ids, next[1].token_ids);
  EXPECT_EQ(next[0].conversation, 0);
  EXPECT_EQ(next[1].conversation, 400);  // the first after the planned ones
  EXPECT_EQ(next[1].family, 0);
}

// The client asks the same, but does not send the history.
TEST(WorkloadTest, ATurnOfASessionSendsWhatIsNewToWhereTheLastEnded) {
  WorkloadSettings settings = Small();
  settings.turns = Fixed(3);
  settings.turn_input_len = Fixed(6);
  settings.fork_probability = 1;
  const auto plain = Make(settings);
  settings.session_prefix = "run-";
  const auto workload = Make(settings);
  const PlannedRequest first = workload->Request(5);
  EXPECT_EQ(first.token_ids, plain->Request(5).token_ids);
  EXPECT_EQ(first.session, "run-5");
  EXPECT_EQ(first.position, 0);
  const std::vector<uint32_t> answer = {1, 2, 3};
  const auto sent_again = plain->NextTurns(plain->Request(5), answer, 0);
  const auto next = workload->NextTurns(first, answer, 0);
  ASSERT_EQ(next.size(), 2u);
  const auto shared = static_cast<ptrdiff_t>(first.token_ids.size()) + 3;
  for (size_t branch = 0; branch < 2; ++branch) {
    const std::vector<uint32_t>& whole = sent_again[branch].token_ids;
    EXPECT_EQ(next[branch].token_ids, std::vector<uint32_t>(whole.begin() + shared, whole.end()));
    EXPECT_EQ(next[branch].position, shared);
    EXPECT_EQ(next[branch].max_tokens, sent_again[branch].max_tokens);
    EXPECT_EQ(next[branch].sampling_seed, sent_again[branch].sampling_seed);
  }
  EXPECT_EQ(next[0].session, "run-5");
  EXPECT_EQ(next[0].fork_of, "");
  EXPECT_EQ(next[1].session, "run-400");
  EXPECT_EQ(next[1].fork_of, "run-5");
  EXPECT_EQ(workload->NextTurns(next[1], answer, 0)[0].position, shared + 6 + 3);
  EXPECT_TRUE(workload->NextTurns(first, std::vector<uint32_t>(990), 0).empty());  // context full
  EXPECT_EQ(workload->Warmup(0).session, "");
}

TEST(WorkloadTest, ThinkTimeIsLogNormal) {
  WorkloadSettings settings = Small();
  settings.turns = Fixed(2);
  settings.think_seconds_median = 10;
  settings.think_sigma = 0.8;
  const auto workload = Make(settings);
  int below_median = 0, below_sigma = 0;
  for (int64_t i = 0; i < 400; ++i) {
    const auto next = workload->NextTurns(workload->Request(i), {}, 0);
    below_median += next[0].due_ns < 10'000'000'000;
    below_sigma += next[0].due_ns < 22'255'409'284;  // 10 e^0.8
  }
  EXPECT_NEAR(below_median, 200, 50);
  EXPECT_NEAR(below_sigma, 0.8413 * 400, 37);
}

TEST(WorkloadTest, AConversationEndsWhenTheContextIsFull) {
  WorkloadSettings settings = Small();
  settings.turns = Fixed(9);
  const auto workload = Make(settings);
  EXPECT_TRUE(workload->NextTurns(workload->Request(0), std::vector<uint32_t>(990), 0).empty());
}

TEST(WorkloadTest, WhatTheModelCannotHoldIsRefusedOrShortened) {
  WorkloadSettings settings = Small();
  settings.input_len = Fixed(996);
  EXPECT_THAT(Refusal(settings),
              testing::AllOf(HasSubstr("toy holds 1000"), HasSubstr("--clip-to-context")));
  settings.clip_to_context = true;
  settings.output_len = Fixed(100);
  const PlannedRequest request = Make(settings)->Request(0);
  EXPECT_EQ(request.max_tokens, 100);
  EXPECT_EQ(request.token_ids.size(), 900u);
  settings.input_len = Fixed(10);
  settings.output_len = Fixed(5000);
  EXPECT_EQ(Make(settings)->Request(0).max_tokens, 990);
}

std::string TraceFile() {
  const std::string path = testing::TempDir() + "/workload_test.jsonl";
  std::ofstream(path)
      << R"({"timestamp": 0, "input_length": 10, "output_length": 1, "hash_ids": [1, 2, 3]}
{"timestamp": 500, "input_length": 9, "output_length": 2, "hash_ids": [1, 2, 4]}
{"timestamp": 2000, "input_length": 12, "output_length": 3}
)";
  return path;
}

TEST(WorkloadTest, ATraceGivesTimesLengthsAndSharedBlocks) {
  WorkloadSettings settings;
  settings.trace_file = TraceFile();
  settings.trace_block = 4;
  ArrivalSettings arrival;
  arrival.trace_speed = 2;
  const auto workload = Make(settings, arrival);
  ASSERT_EQ(workload->size(), 3);
  const PlannedRequest a = workload->Request(0), b = workload->Request(1);
  EXPECT_EQ(b.due_ns, 250'000'000);
  EXPECT_EQ(workload->DueNs(2), 1'000'000'000);
  EXPECT_EQ(a.token_ids.size(), 10u);
  EXPECT_EQ(b.max_tokens, 2);
  EXPECT_EQ(Head(a, 8), Head(b, 8));
  EXPECT_NE(a.token_ids[8], b.token_ids[8]);  // the first of blocks 3 and 4
  EXPECT_EQ(workload->Request(2).token_ids.size(), 12u);
}

TEST(WorkloadTest, ARateGoesRoundATrace) {
  WorkloadSettings settings;
  settings.trace_file = TraceFile();
  settings.trace_block = 4;
  settings.duration_seconds = 2;
  ArrivalSettings arrival;
  arrival.request_rate = 4;
  const auto workload = Make(settings, arrival);
  ASSERT_EQ(workload->size(), 8);
  EXPECT_EQ(workload->DueNs(7), 2'000'000'000);
  EXPECT_EQ(workload->Request(4).max_tokens, 2);
}

TEST(WorkloadTest, ADurationCutsATraceAndAClosedLoopIsEndless) {
  WorkloadSettings settings;
  settings.trace_file = TraceFile();
  settings.trace_block = 4;
  settings.duration_seconds = 1;
  EXPECT_EQ(Make(settings)->size(), 2);
  ArrivalSettings closed;
  closed.max_concurrency = 2;
  EXPECT_EQ(Make(settings, closed)->size(), Workload::kEndless);
}

TEST(WorkloadTest, PromptFilesAreTexts) {
  const std::string path = testing::TempDir() + "/workload_test.txt";
  std::ofstream(path) << "one\ntwo\n";
  WorkloadSettings settings = Small();
  settings.prompt_file = path;
  const auto workload = Make(settings);
  EXPECT_EQ(workload->Request(0).text, "one");
  EXPECT_EQ(workload->Request(3).text, "two");
  EXPECT_TRUE(workload->Request(3).token_ids.empty());
  settings.prompt_file = "/nowhere";
  EXPECT_THAT(Refusal(settings), HasSubstr("/nowhere"));
}

}  // namespace
}  // namespace quire::load
