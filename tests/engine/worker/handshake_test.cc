// Messages between server and worker arrive whole, in pieces of any size; malformed ones are
// refused.
#include "engine/worker/process/handshake.h"

#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <random>
#include <thread>

#include "engine/base/json.h"
#include "engine/worker/shm/shared_memory.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace quire {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

WorkerOrder SomeOrder() {
  WorkerOrder order{.start = true, .device = "cuda", .cpu_threads = 3, .spin_ns = 12345};
  order.local_rank = 1;
  order.host = "10.0.0.2";
  WorkerSpec& spec = order.spec;
  spec.model_dir = "/models/\"quoted\" and more";
  spec.quantization = "fp8";
  spec.tp = {.rank = 1, .size = 2};
  spec.model_options = {.weight_dtype = DType::kBF16, .activation_dtype = DType::kF16};
  spec.model_options.max_tokens = 2048;
  spec.model_options.max_logit_rows = 256;
  spec.model_options.max_model_len = 8192;
  spec.model_options.dummy_weights = spec.model_options.weights_in_place = true;
  spec.model_options.width_multiple = 8;
  spec.kv_layout = {.num_layers = 32,
                    .num_kv_heads = 4,
                    .head_dim = 128,
                    .block_size = 64,
                    .dtype = DType::kBF16};
  spec.num_blocks = 999;
  spec.num_pages = 4321;
  spec.kv_checksum = true;
  spec.worker = {.max_num_seqs = 256,
                 .max_num_batched_tokens = 2048,
                 .step_guesses = 63,
                 .max_model_len = 8192,
                 .vocab_size = 128256,
                 .steps_in_flight = 2,
                 .graph_sizes = {1, 2, 4}};
  return order;
}

TEST(HandshakeTest, AnOrderArrives) {
  const WorkerOrder sent = SomeOrder();
  const absl::StatusOr<WorkerOrder> got = DecodeOrder(EncodeOrder(sent));
  ASSERT_TRUE(got.ok()) << got.status();
  EXPECT_EQ(EncodeOrder(*got), EncodeOrder(sent));
  EXPECT_TRUE(got->start);
  EXPECT_EQ(got->device, "cuda");
  EXPECT_EQ(got->cpu_threads, 3);
  EXPECT_EQ(got->spin_ns, 12345);
  EXPECT_EQ(got->local_rank, 1);
  EXPECT_EQ(got->host, "10.0.0.2");
  EXPECT_EQ(got->spec.model_dir, sent.spec.model_dir);
  EXPECT_EQ(got->spec.quantization, "fp8");
  EXPECT_EQ(got->spec.tp.rank, 1);
  EXPECT_EQ(got->spec.model_options.activation_dtype, DType::kF16);
  EXPECT_EQ(got->spec.model_options.max_model_len, 8192);
  EXPECT_TRUE(got->spec.model_options.dummy_weights && got->spec.model_options.weights_in_place);
  EXPECT_EQ(got->spec.model_options.width_multiple, 8);
  EXPECT_EQ(got->spec.kv_layout.block_bytes(), sent.spec.kv_layout.block_bytes());
  EXPECT_EQ(got->spec.num_pages, 4321);
  EXPECT_TRUE(got->spec.kv_checksum);
  EXPECT_EQ(got->spec.worker.vocab_size, 128256);
  EXPECT_THAT(got->spec.worker.graph_sizes, ElementsAre(1, 2, 4));
  EXPECT_EQ(StepShapeOf(got->spec), StepShapeOf(sent.spec));
}

TEST(HandshakeTest, EightBitKvIsOfTheCacheAlone) {
  WorkerOrder order = SomeOrder();
  order.spec.kv_layout.dtype = DType::kE4M3;
  const absl::StatusOr<WorkerOrder> got = DecodeOrder(EncodeOrder(order));
  ASSERT_TRUE(got.ok()) << got.status();
  EXPECT_EQ(got->spec.kv_layout.dtype, DType::kE4M3);
  EXPECT_TRUE(got->spec.model_options.eight_bit_kv);
  EXPECT_FALSE(DecodeOrder(EncodeOrder(SomeOrder()))->spec.model_options.eight_bit_kv);
  order.spec.model_options.weight_dtype = DType::kE4M3;
  EXPECT_THAT(std::string(DecodeOrder(EncodeOrder(order)).status().message()),
              HasSubstr("weight_dtype"));
}

TEST(HandshakeTest, ErrorsNameTheFaultyFieldOfAnOrder) {
  nlohmann::json order = nlohmann::json::parse(EncodeOrder(SomeOrder()));
  order["spec"]["kv_dtype"] = "float8";
  EXPECT_THAT(std::string(DecodeOrder(order.dump()).status().message()), HasSubstr("kv_dtype"));
  order["spec"].erase("num_blocks");
  order["spec"]["kv_dtype"] = "float32";
  EXPECT_THAT(std::string(DecodeOrder(order.dump()).status().message()), HasSubstr("num_blocks"));
  EXPECT_FALSE(DecodeOrder("{}").ok());
  EXPECT_FALSE(DecodeOrder("[]").ok());
}

TEST(HandshakeTest, MessagesOfAWorkerArrive) {
  const DeviceFacts facts{.kind = "cuda",
                          .name = "NVIDIA H200",
                          .total_bytes = 150'000'000'000,
                          .free_bytes = 149'000'000'000,
                          .backend_bytes = 5,
                          .uuid = "GPU-1"};
  const auto described = std::get<DeviceFacts>(*DecodeMessage(EncodeMessage(facts)));
  EXPECT_EQ(described.name, facts.name);
  EXPECT_EQ(described.total_bytes, facts.total_bytes);
  EXPECT_EQ(described.backend_bytes, 5);
  EXPECT_EQ(described.uuid, "GPU-1");

  const WorkerReport report{.description = "cuda (H200)",
                            .memory = {{"weights", 16'000'000'000}, {"kv", 1}},
                            .seconds = {{"load", 0.25}},
                            .graphs = {{.size = 8, .nodes = 3, .capture_ms = 2.5, .bytes = 7}},
                            .late_masks = false};
  const auto ready = std::get<WorkerReport>(*DecodeMessage(EncodeMessage(report)));
  EXPECT_EQ(ready.memory, report.memory);
  EXPECT_EQ(ready.seconds, report.seconds);
  EXPECT_EQ(ready.graphs.at(0).capture_ms, 2.5);
  EXPECT_FALSE(ready.late_masks);

  const WorkerFailure failure{absl::ResourceExhaustedError("no room")};
  EXPECT_EQ(std::get<WorkerFailure>(*DecodeMessage(EncodeMessage(failure))).status, failure.status);
}

TEST(HandshakeTest, SharesCarryAnyBytes) {
  std::string bytes;
  for (int i = 0; i < 256; ++i) bytes += static_cast<char>(i);
  const absl::StatusOr<WorkerMessage> message = DecodeMessage(EncodeMessage(WorkerShare{bytes}));
  ASSERT_TRUE(message.ok()) << message.status();
  EXPECT_EQ(std::get<WorkerShare>(*message).bytes, bytes);
  EXPECT_EQ(*DecodeShares(EncodeShares({bytes, "", "x"})),
            (std::vector<std::string>{bytes, "", "x"}));
  for (const char* bad :
       {"", "{}", R"({"shared": 1})", R"({"shared": [1]})", R"({"shared": ["0"]})",
        R"({"shared": ["xy"]})", R"({"shared": ["AB"]})"}) {
    EXPECT_FALSE(DecodeShares(bad).ok()) << bad;
  }
}

TEST(HandshakeTest, MalformedMessagesAreRefused) {
  for (const char* word : {
           "",
           "null",
           "[]",
           "{}",
           "3",
           "\"ready\"",
           R"({"ready": 1})",
           R"({"cheese": {}})",
           R"({"device": {}})",
           R"({"device": {"total_bytes": -1}})",
           R"({"device": {"total_bytes": 5, "free_bytes": 6, "backend_bytes": 0}})",
           R"({"device": {"total_bytes": 1e99, "free_bytes": 6, "backend_bytes": 0}})",
           R"({"share": {"bytes": "abc"}})",
           R"({"share": {"bytes": 7}})",
           R"({"error": {"code": 0, "message": "all is well"}})",
           R"({"error": {"code": 17, "message": "?"}})",
           R"({"ready": {"memory": {}, "seconds": [], "graphs": []}})",
           R"({"ready": {"memory": [1], "seconds": [], "graphs": []}})",
           R"({"ready": {"memory": [{"part": "x"}], "seconds": [], "graphs": []}})",
           R"({"ready": {"memory": [], "seconds": []}})",
       }) {
    EXPECT_FALSE(DecodeMessage(word).ok()) << word;
  }
  std::mt19937 random(1);
  const std::string good = EncodeMessage(WorkerReport{.description = "x", .memory = {{"kv", 1}}});
  for (int i = 0; i < 5000; ++i) {
    std::string bad = good;
    for (int k = 0; k < 3; ++k) bad[random() % bad.size()] = static_cast<char>(random());
    (void)DecodeMessage(bad);  // any answer, and no crash
  }
}

struct Pair {
  Pair() {
    std::array<int, 2> ends;
    EXPECT_EQ(socketpair(AF_UNIX, SOCK_STREAM, 0, ends.data()), 0);
    one = Descriptor(ends[0]);
    other = Descriptor(ends[1]);
  }
  Descriptor one, other;
};

TEST(HandshakeTest, MessagesArriveInPiecesOfAnySize) {
  Pair pair;
  const std::string large(300'000, 'x');
  std::thread sender([&] {
    EXPECT_TRUE(SendMessage(pair.one.get(), "").ok());
    EXPECT_TRUE(SendMessage(pair.one.get(), "one").ok());
    EXPECT_TRUE(SendMessage(pair.one.get(), large).ok());
    // Length and text in single bytes.
    for (const char byte : std::string("\3\0\0\0end", 7)) {
      EXPECT_EQ(send(pair.one.get(), &byte, 1, 0), 1);
    }
    pair.one.Close();
  });
  MessageReader reader;
  EXPECT_EQ(*AwaitMessage(pair.other.get(), reader), "");
  EXPECT_EQ(*AwaitMessage(pair.other.get(), reader), "one");
  EXPECT_EQ(*AwaitMessage(pair.other.get(), reader), large);
  EXPECT_EQ(*AwaitMessage(pair.other.get(), reader), "end");
  EXPECT_EQ(AwaitMessage(pair.other.get(), reader).status().code(), absl::StatusCode::kUnavailable);
  sender.join();
}

TEST(HandshakeTest, AMessageAboveTheLimitIsRefused) {
  Pair pair;
  ASSERT_EQ(send(pair.one.get(), "\xff\xff\xff\x7f...", 7, 0), 7);
  MessageReader reader;
  EXPECT_EQ(AwaitMessage(pair.other.get(), reader).status().code(),
            absl::StatusCode::kInvalidArgument);
}

TEST(HandshakeTest, SendingToAClosedSocketIsAnErrorWithoutASignal) {
  Pair pair;
  pair.other.Close();
  EXPECT_EQ(SendMessage(pair.one.get(), "hello").code(), absl::StatusCode::kUnavailable);
}

}  // namespace
}  // namespace quire
