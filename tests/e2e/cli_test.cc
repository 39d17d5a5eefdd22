// The `quire` command against a small service in this process: flags become requests, frames become
// output, statuses become exit codes, ctrl-C becomes a cancelled RPC.
#include <gmock/gmock.h>
#include <google/protobuf/stubs/logging.h>
#include <google/protobuf/util/json_util.h>
#include <google/protobuf/util/message_differencer.h>
#include <grpcpp/server.h>
#include <grpcpp/server_builder.h>
#include <gtest/gtest.h>

#include <atomic>
#include <condition_variable>
#include <fstream>
#include <memory>
#include <mutex>
#include <regex>
#include <set>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "clients/cpp/call/chat_request.h"
#include "clients/cpp/call/error_details.h"
#include "clients/cpp/call/generate_request.h"
#include "clients/cpp/call/interrupt.h"
#include "clients/cpp/call/report.h"
#include "clients/cpp/flags/invocation.h"
#include "clients/cpp/quire.h"
#include "quire/v1/control.grpc.pb.h"
#include "quire/v1/inference.grpc.pb.h"

namespace quire::cli {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

// The details of a refusal: a google.rpc.Status, serialised by the Python classes of google.rpc,
// with BadRequest (two violations), RetryInfo (1.5 s), ErrorInfo, QuotaFailure and Help.
constexpr char kDetailsHex[] =
    "080312016d1a710a29747970652e676f6f676c65617069732e636f6d2f676f6f676c652e7270632e4261645265"
    "717565737412440a230a0e73616d706c696e672e746f705f7012116d75737420626520696e2028302c20315d0a"
    "1d0a0f73746f702e6d61785f746f6b656e73120a6174206c6561737420311a360a28747970652e676f6f676c65"
    "617069732e636f6d2f676f6f676c652e7270632e5265747279496e666f120a0a0808011080cab5ee011a4b0a28"
    "747970652e676f6f676c65617069732e636f6d2f676f6f676c652e7270632e4572726f72496e666f121f0a0a51"
    "554555455f46554c4c120571756972651a0a0a056c696d69741201381a4a0a2b747970652e676f6f676c656170"
    "69732e636f6d2f676f6f676c652e7270632e51756f74614661696c757265121b0a190a0773747265616d73120e"
    "313633383420617265206f70656e1a250a23747970652e676f6f676c65617069732e636f6d2f676f6f676c652e"
    "7270632e48656c70";

std::string FromHex(const std::string& hex) {
  std::string bytes;
  for (size_t i = 0; i + 1 < hex.size(); i += 2) {
    bytes.push_back(static_cast<char>(std::stoi(hex.substr(i, 2), nullptr, 16)));
  }
  return bytes;
}

template <typename Message>
Message Parse(const std::string& json) {
  Message message;
  const auto status = google::protobuf::util::JsonStringToMessage(json, &message);
  EXPECT_TRUE(status.ok()) << json << ": " << status.ToString();
  return message;
}

// Sends its frames, then the status; or holds the stream open until the client cancels.
class FakeInference final
    : public v1::Inference::WithCallbackMethod_Generate<v1::Inference::Service> {
 public:
  std::vector<v1::GenerateResponse> frames;
  grpc::Status status;
  bool hold = false;
  std::vector<v1::GenerateResponse> rest;  // that Attach gives
  v1::GenerateRequest generate;
  v1::AttachRequest attach;
  v1::TokenizeRequest tokenize;
  v1::DetokenizeRequest detokenize;

  void AwaitCancelled() {
    std::unique_lock<std::mutex> lock(mutex_);
    changed_.wait(lock, [this] { return cancelled_; });
  }

  grpc::ServerWriteReactor<v1::GenerateResponse>* Generate(
      grpc::CallbackServerContext*, const v1::GenerateRequest* request) override {
    generate = *request;
    return new Reactor(this);
  }
  grpc::Status Attach(grpc::ServerContext*, const v1::AttachRequest* request,
                      grpc::ServerWriter<v1::GenerateResponse>* writer) override {
    attach = *request;
    for (const v1::GenerateResponse& frame : rest) writer->Write(frame);
    return grpc::Status::OK;
  }
  grpc::Status GenerateUnary(grpc::ServerContext*, const v1::GenerateRequest* request,
                             v1::GenerateResult* result) override {
    generate = *request;
    result->set_text("whole answer");
    result->add_token_ids(7);
    return status;
  }
  grpc::Status Tokenize(grpc::ServerContext*, const v1::TokenizeRequest* request,
                        v1::TokenizeResponse* response) override {
    tokenize = *request;
    for (const uint32_t i : {5u, 6u}) {
      response->add_token_ids(i);
      response->add_begin(i - 5);
      response->add_end(i - 4);
    }
    return status;
  }
  grpc::Status Detokenize(grpc::ServerContext*, const v1::DetokenizeRequest* request,
                          v1::DetokenizeResponse* response) override {
    detokenize = *request;
    response->set_text("text");
    return status;
  }

 private:
  class Reactor final : public grpc::ServerWriteReactor<v1::GenerateResponse> {
   public:
    explicit Reactor(FakeInference* fake) : fake_(fake) { Next(); }
    void OnWriteDone(bool ok) override {
      if (ok) Next();
    }
    void OnCancel() override {
      if (fake_->hold) Finish(grpc::Status(grpc::StatusCode::CANCELLED, "by the client"));
      std::lock_guard<std::mutex> lock(fake_->mutex_);
      fake_->cancelled_ = true;
      fake_->changed_.notify_all();
    }
    void OnDone() override { delete this; }

   private:
    void Next() {
      if (next_ < fake_->frames.size()) return StartWrite(&fake_->frames[next_++]);
      if (!fake_->hold) Finish(fake_->status);
    }
    FakeInference* const fake_;
    size_t next_ = 0;
  };

  std::mutex mutex_;
  std::condition_variable changed_;
  bool cancelled_ = false;  // guarded by mutex_
};

class FakeControl final : public v1::Control::Service {
 public:
  std::atomic<int> memory_answers{1 << 20};  // then the server is gone
  v1::AbortRequest abort;
  v1::DrainRequest drain;
  v1::FlushCacheRequest flush;
  bool draining = true;

  grpc::Status GetServerInfo(grpc::ServerContext*, const v1::GetServerInfoRequest*,
                             v1::ServerInfo* info) override {
    *info = Parse<v1::ServerInfo>(R"({"version": "9.9", "state": "STATE_READY"})");
    return grpc::Status::OK;
  }
  grpc::Status GetModelInfo(grpc::ServerContext*, const v1::GetModelInfoRequest*,
                            v1::ModelInfo* info) override {
    *info = Parse<v1::ModelInfo>(R"({"model": "demo", "vocabSize": 4096})");
    return grpc::Status::OK;
  }
  grpc::Status GetLoad(grpc::ServerContext*, const v1::GetLoadRequest*, v1::Load* load) override {
    load->set_running_requests(3);
    load->set_sessions(7);
    load->set_session_tokens(530);
    load->set_host_pages_used(12);
    return grpc::Status::OK;
  }
  grpc::Status GetMemoryPlan(grpc::ServerContext*, const v1::GetMemoryPlanRequest*,
                             v1::MemoryPlan* plan) override {
    *plan = Parse<v1::MemoryPlan>(
        R"({"parts": [{"name": "weights", "bytes": 2097152}], "hostBytes": 1048576})");
    return grpc::Status::OK;
  }
  grpc::Status GetMemory(grpc::ServerContext*, const v1::GetMemoryRequest*,
                         v1::Memory* memory) override {
    if (memory_answers == 0) return {grpc::StatusCode::UNAVAILABLE, "gone"};
    --memory_answers;
    *memory = Parse<v1::Memory>(R"({
      "plan": {"parts": [{"name": "weights", "bytes": 2097152}], "totalBytes": 2097152,
               "blockSize": 16},
      "tiers": [
        {"name": "device", "totalBlocks": 40, "blockBytes": 1024, "owners": [
          {"name": "free", "blocks": 10, "bytes": 10240},
          {"name": "running", "blocks": 30, "bytes": 30720}]},
        {"name": "host", "totalBlocks": 8, "blockBytes": 1024, "owners": [
          {"name": "session", "blocks": 2, "bytes": 2048}]}],
      "reservedBlocks": 3, "hostPagesReady": 8, "residentBytes": 3145728, "seconds": 600,
      "series": [
        {"name": "used_blocks", "min": 1, "mean": 20.4, "max": 30, "last": 30},
        {"name": "stored_bytes_per_second", "min": 0, "mean": 512, "max": 2048, "last": 1024}]})");
    return grpc::Status::OK;
  }
  grpc::Status Abort(grpc::ServerContext*, const v1::AbortRequest* request,
                     v1::AbortResponse* response) override {
    abort = *request;
    response->set_aborted(2);
    return grpc::Status::OK;
  }
  grpc::Status Drain(grpc::ServerContext*, const v1::DrainRequest* request,
                     v1::DrainResponse* response) override {
    drain = *request;
    response->set_running_requests(1);
    return grpc::Status::OK;
  }
  grpc::Status FlushCache(grpc::ServerContext*, const v1::FlushCacheRequest* request,
                          v1::FlushCacheResponse* response) override {
    flush = *request;
    response->set_blocks(12);
    response->set_pages(3);
    response->set_kept_blocks(4);
    return grpc::Status::OK;
  }
  grpc::Status Undrain(grpc::ServerContext*, const v1::UndrainRequest*,
                       v1::UndrainResponse* response) override {
    response->set_was_draining(std::exchange(draining, false));
    return grpc::Status::OK;
  }
};

// Collects written text and lets another thread wait for it.
class WatchedBuffer : public std::stringbuf {
 public:
  void Await(const std::string& text) {
    std::unique_lock<std::mutex> lock(mutex_);
    changed_.wait(lock, [&] { return seen_.find(text) != std::string::npos; });
  }

 protected:
  int sync() override {
    std::lock_guard<std::mutex> lock(mutex_);
    seen_ = str();
    changed_.notify_all();
    return 0;
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::string seen_;  // guarded by mutex_
};

class CliTest : public ::testing::Test {
 protected:
  CliTest() {
    grpc::ServerBuilder builder;
    int port = 0;
    builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(), &port);
    builder.RegisterService(&inference_);
    builder.RegisterService(&control_);
    server_ = builder.BuildAndStart();
    address_ = "127.0.0.1:" + std::to_string(port);
  }
  ~CliTest() override { server_->Shutdown(); }

  // Runs a command against the fake and returns its exit code.
  int Run(std::vector<std::string> args, const std::string& input = "") {
    args.insert(args.begin(), {"--server", address_});
    std::istringstream in(input);
    std::ostringstream out, err;
    Terminal terminal{in, out, err};
    const int code = RunQuire(args, terminal, interrupt_);
    out_ = out.str();
    err_ = err.str();
    return code;
  }
  void AddText(const std::string& text, uint32_t id) {
    v1::GenerateResponse frame;
    frame.mutable_tokens()->set_text(text);
    frame.mutable_tokens()->add_token_ids(id);
    frame.mutable_tokens()->set_cumulative_tokens(++tokens_);
    inference_.frames.push_back(frame);
  }
  void AddFinished(double decode_seconds = 0) {
    v1::GenerateResponse frame;
    frame.mutable_finished()->mutable_timings()->set_decode_seconds(decode_seconds);
    frame.mutable_finished()->set_reason(v1::FINISH_REASON_MAX_TOKENS);
    frame.mutable_finished()->mutable_usage()->set_completion_tokens(tokens_);
    frame.mutable_finished()->mutable_usage()->set_prompt_tokens(11);
    inference_.frames.push_back(frame);
  }

  FakeInference inference_;
  FakeControl control_;
  std::unique_ptr<grpc::Server> server_;
  std::string address_;
  Interrupt interrupt_;
  uint32_t tokens_ = 0;
  std::string out_, err_;
};

ParsedLine Parsed(const std::vector<std::string>& args) { return ParseInvocation(args); }

v1::GenerateRequest RequestOf(const std::vector<std::string>& args) {
  const ParsedLine parsed = Parsed(args);
  EXPECT_TRUE(parsed.invocation.has_value()) << parsed.err;
  if (!parsed.invocation) return {};
  const Invocation& line = *parsed.invocation;
  const auto chat = ReadChat(line.generate.prompt);
  EXPECT_TRUE(chat.ok()) << chat.status();
  if (!chat.ok()) return {};
  const auto request =
      ToRequest(line.generate, line.model, *chat, line.generate.prompt.text.value_or(""));
  EXPECT_TRUE(request.ok()) << request.status();
  return request.ok() ? *request : v1::GenerateRequest();
}

void ExpectSame(const v1::GenerateRequest& got, const std::string& json) {
  const auto want = Parse<v1::GenerateRequest>(json);
  EXPECT_TRUE(google::protobuf::util::MessageDifferencer::Equals(got, want))
      << "got  " << got.ShortDebugString() << "\nwant " << want.ShortDebugString();
}

TEST(InvocationTest, UnsetFlagsSetNoField) {
  ExpectSame(RequestOf({"generate", "hello"}), R"({"text": "hello", "sampling": {}, "stop": {}})");
}

TEST(InvocationTest, EveryFlagReachesItsField) {
  ExpectSame(RequestOf({"generate",
                        "hello",
                        "--model",
                        "m",
                        "--request-id",
                        "r-1",
                        "--detach-seconds",
                        "30",
                        "--priority",
                        "-3",
                        "--temperature",
                        "0",
                        "--top-k",
                        "4",
                        "--top-p",
                        "0.5",
                        "--min-p",
                        "0.25",
                        "--seed",
                        "18446744073709551615",
                        "--repetition-penalty",
                        "1.5",
                        "--presence-penalty",
                        "-1",
                        "--frequency-penalty",
                        "2",
                        "--logit-bias",
                        "3=-100",
                        "--logit-bias",
                        "4=0.5",
                        "--max-tokens",
                        "9",
                        "--min-tokens",
                        "0",
                        "--stop",
                        "a b",
                        "--stop",
                        "\n",
                        "--stop-token-ids",
                        "1,2",
                        "--include-stop",
                        "--ignore-eos",
                        "--no-special-tokens",
                        "--keep-special-tokens",
                        "--logprobs",
                        "--answers",
                        "2",
                        "--best-of",
                        "5",
                        "--json"}),
             R"({"text": "hello", "model": "m", "requestId": "r-1", "priority": -3,
          "detachSeconds": 30,
          "addSpecialTokens": false, "n": 2, "bestOf": 5,
          "sampling": {"temperature": 0, "topK": 4, "topP": 0.5, "minP": 0.25,
                       "seed": "18446744073709551615", "repetitionPenalty": 1.5,
                       "presencePenalty": -1, "frequencyPenalty": 2,
                       "logitBias": {"3": -100, "4": 0.5}},
          "stop": {"maxTokens": 9, "minTokens": 0, "stop": ["a b", "\n"],
                   "stopTokenIds": [1, 2], "includeStopInOutput": true, "ignoreEos": true},
          "output": {"logprobs": true, "skipSpecialTokens": false}})");
}

TEST(InvocationTest, PromptsAreTextOrIdsOrChat) {
  ExpectSame(RequestOf({"generate", "--token-ids", "1,2", "--token-ids", "3"}),
             R"({"tokenIds": {"ids": [1, 2, 3]}, "sampling": {}, "stop": {}})");
  ExpectSame(RequestOf({"generate", "--chat", "hi"}),
             R"({"chat": {"messages": [{"role": "user", "content": "hi"}]},
                 "sampling": {}, "stop": {}})");
  ExpectSame(RequestOf({"generate", "--system", "be brief", "hi"}),
             R"({"chat": {"messages": [{"role": "system", "content": "be brief"},
                                       {"role": "user", "content": "hi"}]},
                 "sampling": {}, "stop": {}})");
  ExpectSame(RequestOf({"generate", "--stop", "x", "--", "--not-a-flag"}),
             R"({"text": "--not-a-flag", "sampling": {}, "stop": {"stop": ["x"]}})");
}

TEST(InvocationTest, MistakesExitWithTwoAndNameTheFlag) {
  const std::vector<std::pair<std::vector<std::string>, std::string>> mistakes = {
      {{}, "a command is required"},
      {{"generat"}, "generat"},
      {{"generate", "--top-k", "-1"}, "--top-k"},
      {{"generate", "x", "--seed", "-1"}, "--seed"},
      {{"generate", "x", "--seed", "18446744073709551616"}, "--seed"},
      {{"generate", "x", "--seed", ""}, "--seed"},
      {{"generate", "x", "--max-tokens", "-18446744073709551615"}, "--max-tokens"},
      {{"generate", "x", "--min-tokens", "4294967296"}, "--min-tokens"},
      {{"generate", "--temperature", "warm"}, "--temperature"},
      {{"generate", "--nope", "x"}, "--nope"},
      {{"generate", "x", "--token-ids", "1"}, "--token-ids"},
      {{"generate", "--token-ids", "1", "--tools", "t.json"}, "--token-ids"},
      {{"generate", "--session", "s", "--continue-final-message", "x"}, "--session"},
      {{"generate", "--token-ids", "1,x"}, "--token-ids"},
      {{"generate", "--token-ids", "1,-2"}, "--token-ids"},
      {{"generate", "--token-ids", ""}, "--token-ids"},
      {{"generate", "x", "--stop-token-ids", ""}, "--stop-token-ids"},
      {{"generate", "x", "--logprobs"}, "--json"},
      {{"generate", "x", "--print-ids", "--json"}, "--print-ids"},
      {{"generate", "x", "--timeout", "-2"}, "--timeout"},
      {{"generate", "x", "--no-stream", "--detach-seconds", "5"}, "--detach-seconds"},
      {{"attach"}, "ID"},
      {{"attach", "a", "--after", "-1"}, "--after"},
      {{"abort"}, "--all"},
      {{"abort", "a", "--all"}, "--all"},
      {{"detokenize", "x"}, "ids"},
      {{"detokenize", ""}, "ids"},
  };
  for (const auto& [args, word] : mistakes) {
    const ParsedLine parsed = Parsed(args);
    EXPECT_FALSE(parsed.invocation.has_value()) << ::testing::PrintToString(args);
    EXPECT_EQ(parsed.exit_code, kExitUsage) << ::testing::PrintToString(args);
    EXPECT_THAT(parsed.err, HasSubstr(word));
  }
}

// The words of flags/, whose tests have the rest.
TEST(InvocationTest, MistakesAreTold) {
  const std::vector<std::pair<std::vector<std::string>, std::string>> mistakes = {
      {{"generate", "--top-kk", "4", "x"},
       "quire: --top-kk is no flag of quire generate; the nearest is --top-k\n"
       "quire generate --help lists the flags.\n"},
      {{"generate", "a", "b"},
       "quire: unexpected argument 'b': quire generate takes TEXT; put a text with spaces in "
       "quotes\nquire generate --help lists the flags.\n"},
      {{"generate", "x", "--priority", "1.5", "--seed", "y"},
       "quire: --priority '1.5': must be a whole number, -2147483648 to 2147483647\n"
       "quire: --seed 'y': must be a whole number, 0 to 18446744073709551615\n"
       "quire generate --help lists the flags.\n"},
      {{"info", "--host", "h"},
       "quire: --host: Quire has --server HOST:PORT or unix:PATH instead\n"
       "quire info --help lists the flags.\n"},
      {{"info", "--chat"},
       "quire: --chat belongs to quire generate\n"
       "quire info --help lists the flags.\n"},
      {{"session", "get"},
       "quire: quire session get needs NAME: the session's name\n"
       "quire session get --help lists the flags.\n"},
      {{},
       "quire: a command is required: generate, attach, chat, tokenize, detokenize, score, embed, "
       "session, job, batch, info, health, memory, abort, drain, flush, trace, key or completion\n"
       "quire --help lists the flags.\n"},
  };
  for (const auto& [args, words] : mistakes) {
    const ParsedLine parsed = Parsed(args);
    EXPECT_EQ(parsed.exit_code, kExitUsage);
    EXPECT_EQ(parsed.err, words);
  }
}

TEST(InvocationTest, ValuesAsPeopleWriteThem) {
  const ParsedLine parsed =
      Parsed({"generate", "x", "--server", "localhost", "--timeout", "5m", "--max-new-tokens", "2k",
              "--top-p", "90%", "--no-stream", "--chat=false"});
  ASSERT_TRUE(parsed.invocation.has_value()) << parsed.err;
  EXPECT_EQ(parsed.err, "quire: --max-new-tokens is accepted; here it is called max-tokens\n");
  const Invocation& line = *parsed.invocation;
  EXPECT_EQ(line.connection.server, "localhost");
  EXPECT_EQ(line.timeout_seconds, 300);
  EXPECT_EQ(line.generate.stop.max_tokens, 2000u);
  EXPECT_FLOAT_EQ(line.generate.sampling.numbers.at("top_p").value_or(0), 0.9F);
  EXPECT_FALSE(line.generate.stream);
  EXPECT_FALSE(line.generate.prompt.chat);
}

// Every flag of the table, as the completion for fish lists them.
std::set<std::string> AllFlags() {
  const std::string script = Parsed({"completion", "fish"}).out;
  std::set<std::string> names;
  const std::regex flag(" -l ([a-z-]+) -[a-z]");
  for (std::sregex_iterator it(script.begin(), script.end(), flag), end; it != end; ++it) {
    names.insert((*it)[1]);
  }
  for (const char* of_every_program : {"help", "version"}) names.erase(of_every_program);
  return names;
}

TEST(InvocationTest, EveryFlagIsDocumentedAndEveryDocumentedOneExists) {
  std::stringstream text;
  text << std::ifstream(QUIRE_SOURCE_DIR "/docs/cli.md").rdbuf();
  const std::string document = text.str();
  std::set<std::string> known = AllFlags();
  for (const std::string& name : AllFlags()) {
    if (name.starts_with("no-")) continue;
    const bool there = document.find("`--" + name) != std::string::npos ||
                       document.find("`--no-" + name) != std::string::npos;
    EXPECT_TRUE(there) << name;
  }
  known.insert({"help", "version", "help-man", "completion", "flag", "no-flag"});
  const std::regex flag("`--([a-z-]+)");
  for (std::sregex_iterator it(document.begin(), document.end(), flag), end; it != end; ++it) {
    EXPECT_TRUE(known.contains((*it)[1])) << (*it)[1];
  }
}

TEST(InvocationTest, TheManPageAndEveryCompletionNameEveryFlag) {
  const std::string page = Parsed({"--help-man"}).out;
  EXPECT_GT(AllFlags().size(), 50u);
  for (const std::string& name : AllFlags()) {
    std::string escaped;
    for (const char c : name) escaped += c == '-' ? std::string("\\-") : std::string(1, c);
    if (!name.starts_with("no-")) {
      EXPECT_THAT(page, HasSubstr(escaped));
    }
    EXPECT_THAT(Parsed({"completion", "bash"}).out, HasSubstr("--" + name));
    EXPECT_THAT(Parsed({"--completion", "zsh"}).out, HasSubstr("--" + name));
  }
}

TEST(InvocationTest, HelpAndVersionSucceed) {
  EXPECT_EQ(Parsed({"--version"}).exit_code, 0);
  EXPECT_THAT(Parsed({"--version"}).out, HasSubstr("quire 0."));
  EXPECT_THAT(Parsed({"--help"}).out, HasSubstr("10 + the gRPC status code"));
  EXPECT_THAT(Parsed({"generate", "--help"}).out, HasSubstr("--temperature"));
}

TEST(ErrorDetailsTest, EveryFactOfAGoogleRpcStatusIsALine) {
  EXPECT_THAT(
      DescribeErrorDetails(FromHex(kDetailsHex)),
      ElementsAre("field sampling.top_p: must be in (0, 1]", "field stop.max_tokens: at least 1",
                  "retry after 1.5 s", "reason QUEUE_FULL of quire limit=8",
                  "detail of type google.rpc.QuotaFailure", "detail of type google.rpc.Help"));
  EXPECT_THAT(DescribeErrorDetails(""), ElementsAre());
  EXPECT_THAT(DescribeErrorDetails("\x1a\x7f"),
              ElementsAre("details that are no google.rpc.Status"));
}

// Damaged bytes of a server or proxy are described, and never trusted.
TEST(ErrorDetailsTest, DamagedBytesNeverCrash) {
  google::protobuf::LogSilencer silence;
  const std::string good = FromHex(kDetailsHex);
  for (size_t i = 0; i < good.size(); ++i) {
    DescribeErrorDetails(good.substr(0, i));
    for (const int bit : {1, 16, 128}) {
      std::string damaged = good;
      damaged[i] = static_cast<char>(damaged[i] ^ bit);
      DescribeErrorDetails(damaged);
    }
  }
}

TEST(InterruptTest, CancelsACallArmedBeforeOrAfterTheSignal) {
  Interrupt interrupt;
  int cancelled = 0;
  EXPECT_FALSE(interrupt.Raise());
  interrupt.Arm([&] { ++cancelled; });
  EXPECT_EQ(cancelled, 1);
  EXPECT_TRUE(interrupt.Raise());
  EXPECT_EQ(cancelled, 2);
  interrupt.Disarm();
  EXPECT_FALSE(interrupt.Raise());
  EXPECT_EQ(cancelled, 2);
}

TEST_F(CliTest, GenerateJoinsTextAndEndsTheLine) {
  AddText("Once", 1);
  AddText(" upon", 2);
  AddFinished();
  EXPECT_EQ(Run({"generate", "go"}), 0) << err_;
  EXPECT_EQ(out_, "Once upon\n");
  EXPECT_EQ(err_, "");
  EXPECT_EQ(inference_.generate.text(), "go");
}

TEST_F(CliTest, AStreamThatMayDetachGoesOnWhenItsConnectionIsLost) {
  inference_.frames.push_back(
      Parse<v1::GenerateResponse>(R"({"requestId": "r", "accepted": {"detachSeconds": 60}})"));
  inference_.rest = inference_.frames;
  AddText("Once", 1);
  inference_.status = {grpc::StatusCode::UNAVAILABLE, "Socket closed"};
  inference_.rest.push_back(
      Parse<v1::GenerateResponse>(R"({"tokens": {"text": " upon", "cumulativeTokens": 2}})"));
  inference_.rest.push_back(Parse<v1::GenerateResponse>(R"({"finished": {}})"));
  EXPECT_EQ(Run({"generate", "go", "--detach-seconds", "60"}), 0) << err_;
  EXPECT_EQ(out_, "Once upon\n");
  EXPECT_EQ(inference_.attach.request_id(), "r");
  EXPECT_EQ(inference_.attach.after_tokens(), 1u);
  EXPECT_EQ(Run({"attach", "r", "--after", "1"}), 0) << err_;
  EXPECT_EQ(out_, " upon\n");
}

TEST_F(CliTest, GenerateReadsThePromptFromStdin) {
  AddFinished();
  EXPECT_EQ(Run({"generate"}, "line one\nline two\n"), 0);
  EXPECT_EQ(inference_.generate.text(), "line one\nline two");
  EXPECT_EQ(Run({"generate", "-"}, "x"), 0);
  EXPECT_EQ(inference_.generate.text(), "x");
  EXPECT_EQ(Run({"generate", ""}, "not read"), 0);
  EXPECT_TRUE(inference_.generate.has_text());
  EXPECT_EQ(inference_.generate.text(), "");
}

TEST_F(CliTest, GeneratePrintsIdsOrJsonWhenAsked) {
  AddText("a", 10);
  AddText("b", 11);
  AddFinished();
  EXPECT_EQ(Run({"generate", "go", "--print-ids"}), 0);
  EXPECT_EQ(out_, "10 11\n");
  EXPECT_FALSE(inference_.generate.output().text());

  EXPECT_EQ(Run({"generate", "go", "--json"}), 0);
  std::istringstream lines(out_);
  std::string line;
  size_t count = 0;
  for (; std::getline(lines, line); ++count) {
    EXPECT_TRUE(google::protobuf::util::MessageDifferencer::Equals(
        Parse<v1::GenerateResponse>(line), inference_.frames.at(count)));
  }
  EXPECT_EQ(count, 3u);
  EXPECT_THAT(out_, HasSubstr("\"cumulative_tokens\":2"));
}

// They come mixed, and the second ends first.
TEST_F(CliTest, SeveralAnswersArePrintedOneAfterTheOther) {
  const auto text = [this](uint32_t index, const std::string& part, uint32_t id) {
    v1::TokenDelta* tokens = inference_.frames.emplace_back().mutable_tokens();
    tokens->set_index(index);
    tokens->set_text(part);
    tokens->add_token_ids(id);
  };
  const auto end = [this](uint32_t index) {
    v1::Finished* finished = inference_.frames.emplace_back().mutable_finished();
    finished->set_index(index);
    finished->mutable_usage()->set_completion_tokens(2);
    if (index > 0) return;
    finished->mutable_request_usage()->set_completion_tokens(4);
  };
  text(1, "so ", 7);
  text(0, "once", 8);
  text(1, "far", 9);
  end(1);
  text(0, " upon", 10);
  end(0);
  EXPECT_EQ(Run({"generate", "go", "--answers", "2", "--stats"}), 0) << err_;
  EXPECT_EQ(out_, "--- 0\nonce upon\n--- 1\nso far\n");
  EXPECT_THAT(err_, HasSubstr("completion tokens:   4 of all answers"));
  EXPECT_EQ(Run({"generate", "go", "--answers", "2", "--print-ids"}), 0) << err_;
  EXPECT_EQ(out_, "--- 0\n8 10\n--- 1\n7 9\n");
}

TEST_F(CliTest, StatsGoToStderr) {
  AddText("a", 10);
  AddText("b", 11);
  AddText("c", 12);
  AddFinished(/*decode_seconds=*/0.5);
  EXPECT_EQ(Run({"generate", "go", "--stats"}), 0);
  EXPECT_EQ(out_, "abc\n");
  EXPECT_THAT(err_, HasSubstr("prompt tokens:       11\n"));
  EXPECT_THAT(err_, HasSubstr("completion tokens:   3 (MAX_TOKENS)\n"));
  EXPECT_THAT(err_, HasSubstr("time to first token: "));
  // Not from the arrival of the frames, which arrive together.
  EXPECT_THAT(err_, HasSubstr("tokens per second:   4.0\n"));
}

TEST_F(CliTest, TextBehindACallBeginsALine) {
  AddText("Let me see.", 1);
  for (const char* arguments : {"{\"a\": ", "1}"}) {
    v1::TokenDelta* tokens = inference_.frames.emplace_back().mutable_tokens();
    v1::ToolCallDelta* call = tokens->add_tool_calls();
    if (*arguments == '{') call->set_name("look");
    call->set_arguments(arguments);
  }
  for (const char* text : {"So", " it is."}) AddText(text, 2);
  AddFinished();
  EXPECT_EQ(Run({"generate", "hi"}), 0);
  EXPECT_EQ(out_, "Let me see.\nlook {\"a\": 1}\nSo it is.\n");
}

TEST_F(CliTest, NoStreamUsesTheUnaryCall) {
  EXPECT_EQ(Run({"generate", "go", "--no-stream"}), 0);
  EXPECT_EQ(out_, "whole answer\n");
  EXPECT_EQ(Run({"generate", "go", "--no-stream", "--print-ids"}), 0);
  EXPECT_EQ(out_, "7\n");
}

TEST_F(CliTest, ErrorsKeepTheTextAndPrintTheReason) {
  AddText("half an ans", 1);
  inference_.status =
      grpc::Status(grpc::StatusCode::RESOURCE_EXHAUSTED, "too many streams", FromHex(kDetailsHex));
  EXPECT_EQ(Run({"generate", "go"}), 18);
  EXPECT_EQ(out_, "half an ans\n");
  EXPECT_THAT(err_, HasSubstr("quire: RESOURCE_EXHAUSTED: too many streams\n"));
  EXPECT_THAT(err_, HasSubstr("  field sampling.top_p: must be in (0, 1]\n"));
  EXPECT_THAT(err_, HasSubstr("  retry after 1.5 s\n"));
}

TEST_F(CliTest, ADetailThatRepeatsTheMessageIsOmitted) {
  inference_.status =
      grpc::Status(grpc::StatusCode::INVALID_ARGUMENT, "must be in (0, 1]", FromHex(kDetailsHex));
  EXPECT_EQ(Run({"generate", "go"}), 13);
  EXPECT_THAT(err_, Not(HasSubstr("sampling.top_p")));
  EXPECT_THAT(err_, HasSubstr("  field stop.max_tokens: at least 1\n"));
}

TEST_F(CliTest, EveryStatusCodeHasItsExitCode) {
  for (int code = 1; code <= 16; ++code) {
    inference_.status = grpc::Status(static_cast<grpc::StatusCode>(code), "no");
    EXPECT_EQ(Run({"tokenize", "x"}), 10 + code);
    EXPECT_THAT(err_, HasSubstr(std::string(Name(static_cast<grpc::StatusCode>(code))) + ": no"));
  }
}

TEST_F(CliTest, AnUnfinishedStreamIsALocalFailure) {
  AddText("a", 1);
  EXPECT_EQ(Run({"generate", "go"}), kExitLocal);
  EXPECT_THAT(err_, HasSubstr("without a Finished frame"));
}

TEST_F(CliTest, BadLogitBiasIsAMistakeOfTheCommandLine) {
  EXPECT_EQ(Run({"generate", "go", "--logit-bias", "5"}), kExitUsage);
  EXPECT_THAT(err_, HasSubstr("ID=VALUE"));
}

TEST_F(CliTest, TimeoutIsTheRpcsDeadline) {
  inference_.hold = true;
  EXPECT_EQ(Run({"generate", "go", "--timeout", "0.05"}), 14);
  EXPECT_THAT(err_, HasSubstr("DEADLINE_EXCEEDED"));
}

TEST_F(CliTest, ARefusedConnectionIsUnavailable) {
  server_->Shutdown();
  EXPECT_EQ(Run({"info"}), 24);
  EXPECT_THAT(err_, HasSubstr("UNAVAILABLE"));
}

// Text is printed while the stream is open, and ctrl-C reaches the server.
TEST_F(CliTest, CtrlCCancelsTheStreamAfterItsTextIsPrinted) {
  AddText("Once", 1);
  inference_.hold = true;
  WatchedBuffer screen;
  int code = 0;
  std::string errors;
  std::thread command([&] {
    std::istringstream in;
    std::ostream out(&screen);
    std::ostringstream err;
    Terminal terminal{in, out, err};
    code = RunQuire({"--server", address_, "generate", "go"}, terminal, interrupt_);
    errors = err.str();
  });
  screen.Await("Once");
  EXPECT_TRUE(interrupt_.Raise());
  command.join();
  inference_.AwaitCancelled();
  EXPECT_EQ(code, kExitInterrupted);
  EXPECT_THAT(errors, HasSubstr("interrupted"));
}

// A full disk or a closed pipe: the stream is cancelled, so that the server stops its work.
TEST_F(CliTest, OutputThatFailsCancelsTheStream) {
  for (uint32_t i = 0; i < 3; ++i) AddText("word ", i);
  inference_.hold = true;
  std::istringstream in;
  std::ostream out(nullptr);  // every write fails
  std::ostringstream err;
  Terminal terminal{in, out, err};
  EXPECT_EQ(RunQuire({"--server", address_, "generate", "go"}, terminal, interrupt_), kExitLocal);
  inference_.AwaitCancelled();
  EXPECT_THAT(err.str(), HasSubstr("cannot write"));
}

TEST_F(CliTest, TokenizeAndDetokenize) {
  EXPECT_EQ(Run({"tokenize", "ab", "--no-special-tokens"}), 0);
  EXPECT_EQ(out_, "5 6\n");
  EXPECT_EQ(inference_.tokenize.text(), "ab");
  EXPECT_FALSE(inference_.tokenize.add_special_tokens());
  EXPECT_EQ(Run({"tokenize", "ab", "--offsets"}), 0);
  EXPECT_EQ(out_, "5 0 1\n6 1 2\n");
  EXPECT_TRUE(inference_.tokenize.offsets());
  EXPECT_EQ(Run({"tokenize", "--chat", "ab"}), 0);
  EXPECT_EQ(inference_.tokenize.chat().messages(0).content(), "ab");
  EXPECT_EQ(Run({"tokenize", "--template-name", "rag", "ab"}), 0);
  EXPECT_EQ(inference_.tokenize.chat().template_name(), "rag");
  EXPECT_EQ(Run({"tokenize", "--tools", "/nowhere/t.json", "ab"}), kExitUsage);
  EXPECT_EQ(err_, "quire: --tools /nowhere/t.json: cannot be read\n");

  EXPECT_EQ(Run({"detokenize", "1,2", "3"}), 0);
  EXPECT_EQ(out_, "text\n");
  EXPECT_THAT(inference_.detokenize.token_ids(), ElementsAre(1, 2, 3));
  EXPECT_EQ(Run({"detokenize", "--keep-special-tokens"}, "4, 5\n6\n"), 0);
  EXPECT_THAT(inference_.detokenize.token_ids(), ElementsAre(4, 5, 6));
  EXPECT_FALSE(inference_.detokenize.skip_special_tokens());
  EXPECT_EQ(Run({"detokenize"}, "4 five"), kExitLocal);
  EXPECT_THAT(err_, HasSubstr("five"));
}

TEST_F(CliTest, InfoShowsServerModelLoadAndMemory) {
  EXPECT_EQ(Run({"info"}), 0);
  for (const char* part : {"quire 9.9, ready", "demo", "vocabulary 4096", "3 running", "weights",
                           "7 with 530 tokens", "12 of 0 blocks of host", "host     1.0 MiB"}) {
    EXPECT_THAT(out_, HasSubstr(part));
  }
  EXPECT_EQ(Run({"info", "--json"}), 0);
  EXPECT_EQ(out_,
            "{\"server\":{\"version\":\"9.9\",\"state\":\"STATE_READY\"},"
            "\"model\":{\"model\":\"demo\",\"vocab_size\":4096},"
            "\"load\":{\"running_requests\":3,\"host_pages_used\":12,\"sessions\":\"7\","
            "\"session_tokens\":\"530\"},"
            "\"memory_plan\":{\"parts\":[{\"name\":\"weights\",\"bytes\":\"2097152\"}],"
            "\"host_bytes\":\"1048576\"}}\n");
}

TEST_F(CliTest, MemoryShowsPlanTiersAndTheLastMinutes) {
  EXPECT_EQ(Run({"memory"}), 0);
  EXPECT_EQ(out_,
            "plan     2.0 MiB\n"
            "  weights           2.0 MiB\n"
            "device   40 blocks of 16 tokens, 1.0 KiB each; 3 are promised to requests\n"
            "  free                   10     10.0 KiB  25.0%\n"
            "  running                30     30.0 KiB  75.0%\n"
            "host     8 pages of 16 tokens, 1.0 KiB each; 8 are ready\n"
            "  session                 2      2.0 KiB  25.0%\n"
            "process  3.0 MiB resident\n"
            "the last 600 seconds\n"
            "                                    min         mean          max\n"
            "  used_blocks                         1           20           30\n"
            "  stored_bytes_per_second           0 B        512 B      2.0 KiB\n");
  EXPECT_EQ(Run({"memory", "--json"}), 0);
  EXPECT_THAT(out_, HasSubstr("\"tiers\":[{\"name\":\"device\",\"total_blocks\":\"40\""));
  EXPECT_THAT(out_, HasSubstr("\"seconds\":600}\n"));
}

TEST_F(CliTest, MemoryWatchPrintsALineASecondUntilTheServerIsGone) {
  control_.memory_answers = 2;
  EXPECT_EQ(Run({"memory", "--watch"}), kExitStatusBase + grpc::StatusCode::UNAVAILABLE);
  EXPECT_THAT(out_,
              testing::MatchesRegex("time      running  session [^\n]*\n"
                                    "[0-9:]{8} +30 +0 +0 +10 +0 [|] +2 +2 +1.0 KiB/s +0 B/s\n"
                                    "[0-9:]{8} +30 +0 +0 +10 +0 [|] +2 +2 +1.0 KiB/s +0 B/s\n"));
  EXPECT_THAT(err_, HasSubstr("gone"));
}

TEST_F(CliTest, AbortAndDrain) {
  EXPECT_EQ(Run({"abort", "r1", "r2"}), 0);
  EXPECT_EQ(out_, "aborted 2\n");
  EXPECT_THAT(control_.abort.request_ids(), ElementsAre("r1", "r2"));
  EXPECT_EQ(Run({"abort", "--all", "--json"}), 0);
  EXPECT_TRUE(control_.abort.all());
  EXPECT_EQ(out_, "{\"aborted\":2}\n");
  EXPECT_EQ(Run({"drain", "--exit-when-idle"}), 0);
  EXPECT_TRUE(control_.drain.exit_when_idle());
  EXPECT_EQ(out_, "draining: 1 running, 0 waiting\n");
  EXPECT_EQ(Run({"drain", "--undo"}), 0);
  EXPECT_EQ(out_, "accepting requests again\n");
  EXPECT_EQ(Run({"drain", "--undo"}), 0);
  EXPECT_EQ(out_, "was not draining\n");
  EXPECT_EQ(Run({"drain", "--undo", "--exit-when-idle"}), 2);
}

TEST_F(CliTest, FlushSaysWhatBecameFreeAndWhatStays) {
  EXPECT_EQ(Run({"flush"}), 0);
  EXPECT_EQ(out_,
            "freed    12 blocks, 3 pages of host memory\n"
            "kept     4 blocks, 0 pages: in use, or of sessions\n");
  EXPECT_FALSE(control_.flush.has_sessions());
  EXPECT_FALSE(control_.flush.has_tenant());
  EXPECT_EQ(Run({"flush", "--sessions", "--tenant", "acme", "--json"}), 0);
  EXPECT_EQ(out_, "{\"blocks\":\"12\",\"pages\":\"3\",\"kept_blocks\":\"4\"}\n");
  EXPECT_TRUE(control_.flush.sessions());
  EXPECT_EQ(control_.flush.tenant(), "acme");
  EXPECT_EQ(Run({"flush", "acme"}), 2);
}

}  // namespace
}  // namespace quire::cli
