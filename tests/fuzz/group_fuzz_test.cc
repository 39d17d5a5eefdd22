// Mutated messages between server, workers and hosts: the handshake, plans and results, frames, and
// the greeting of hosts.
#include <string>
#include <vector>

#include "engine/base/json.h"
#include "engine/worker/process/handshake.h"
#include "engine/worker/process/plan_codec.h"
#include "engine/worker/remote/frame.h"
#include "engine/worker/remote/greeting.h"
#include "gtest/gtest.h"
#include "tests/fuzz/json_mutator.h"
#include "tests/fuzz/mutator.h"
#include "tests/fuzz/targets/group_targets.h"

namespace quire {
namespace {

using Json = nlohmann::json;

WorkerOrder SomeOrder() {
  WorkerOrder order{.start = true, .device = "cuda", .cpu_threads = 3, .spin_ns = 12345};
  order.host = "10.0.0.2";
  order.spec.model_dir = "/models/a";
  order.spec.quantization = "fp8";
  order.spec.tp = {.rank = 1, .size = 2};
  order.spec.model_options = {.weight_dtype = DType::kBF16, .activation_dtype = DType::kF16};
  order.spec.model_options.max_tokens = 2048;
  order.spec.model_options.max_logit_rows = 256;
  order.spec.model_options.max_model_len = 8192;
  order.spec.kv_layout = {.num_layers = 32,
                          .num_kv_heads = 4,
                          .head_dim = 128,
                          .block_size = 64,
                          .dtype = DType::kBF16};
  order.spec.num_blocks = 999;
  order.spec.worker = {.max_num_seqs = 256,
                       .max_num_batched_tokens = 2048,
                       .max_model_len = 8192,
                       .vocab_size = 128256,
                       .steps_in_flight = 2,
                       .graph_sizes = {1, 2, 4}};
  return order;
}

TEST(GroupFuzzTest, Handshake) {
  ASSERT_TRUE(DecodeOrder(EncodeOrder(SomeOrder())).ok());
  const std::vector<std::string> texts = {
      EncodeOrder(SomeOrder()),
      EncodeMessage(DeviceFacts()),
      EncodeMessage(WorkerReport()),
      EncodeMessage(WorkerShare{"\x01\xFF bytes"}),
      EncodeMessage(WorkerFailure{absl::InternalError("it failed")}),
      EncodeShares({"a", std::string("\0b", 2)})};
  std::vector<Json> seeds;
  for (const std::string& text : texts) seeds.push_back(Json::parse(text));
  JsonMutator values(seeds, {"cpu", "cuda", "bf16", "f32", "start", "device", "ready", 64}, 21);
  for (int i = 0; i < 10000; ++i) FuzzHandshake(values.Next().dump());
  Mutator text(texts, {"{", "}", "null", "\"", ",", "-1", std::string(1, '\0')}, 22);
  for (int i = 0; i < 5000; ++i) FuzzHandshake(text.Next());
}

template <typename Value>
std::string Encoded(const Value& value, size_t (*encode)(const Value&, std::span<std::byte>)) {
  std::vector<std::byte> bytes(1 << 16);
  const size_t used = encode(value, bytes);
  return {reinterpret_cast<const char*>(bytes.data()), used};
}

TEST(GroupFuzzTest, PlanCodec) {
  StepPlan plan;
  plan.new_rows.resize(2);
  plan.token_runs.resize(2);
  plan.block_adds.resize(3);
  plan.work.resize(2);
  plan.tokens = {1, 2, 3};
  plan.ids = {7};
  StepResult result;
  result.samples.resize(2);
  const std::string zero(1, '\0');
  Mutator bytes(
      {Encoded(plan, EncodePlan), Encoded(StepPlan(), EncodePlan), Encoded(result, EncodeResult)},
      {zero, std::string(8, '\0'), std::string(4, '\xFF'), std::string("\1\0\0\0", 4),
       std::string("\xFF\xFF\xFF\x7F", 4), std::string("\0\0\0\x80", 4)},
      23);
  for (int i = 0; i < 20000; ++i) FuzzPlanCodec(bytes.Next());
}

TEST(GroupFuzzTest, Frames) {
  const auto frame = [](FrameKind kind, const std::string& bytes) {
    return FrameHead(kind, bytes.size()) + bytes;
  };
  Mutator bytes({frame(FrameKind::kHello, "{}") + frame(FrameKind::kPlan, std::string(200, 'x')),
                 frame(FrameKind::kEnded, ""), FrameHead(FrameKind::kPlan, 4097)},
                {std::string(1, '\0'), std::string("\1\0\0\0\0\0\0\0", 8), "\xFF", "\x10"}, 24);
  for (int i = 0; i < 20000; ++i) FuzzFrames(bytes.Next());
}

TEST(GroupFuzzTest, Greeting) {
  const FollowerGreeting::Options options{.key = GroupKey("another key than theirs"),
                                          .place = {.node = 2, .nodes = 3, .local = 1}};
  const LeaderGreeting::Group group{.key = options.key, .nodes = 3, .ranks = 6, .instance = "two"};
  // A greeting between two that have the same, other key; each frame goes to those with theirs.
  LeaderGreeting leader(group);
  FollowerGreeting follower(options);
  std::vector<Frame> frames = {follower.Hello()};
  frames.push_back(*leader.Take(frames[0]));
  frames.push_back(**follower.Take(frames[1]));
  frames.push_back(*leader.Take(frames[2]));
  ASSERT_TRUE(leader.joined());
  std::vector<Json> seeds;
  for (const Frame& frame : frames) seeds.push_back(Json::parse(frame.bytes));
  JsonMutator values(seeds, {std::string(64, '0'), std::string(64, 'f'), BuildVersion(), 2, 3}, 25);
  for (int i = 0; i < 5000; ++i) {
    const auto kind = static_cast<char>(i % 18);
    FuzzGreeting(kind + values.Next().dump());
  }
}

}  // namespace
}  // namespace quire
