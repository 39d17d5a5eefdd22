// The fixture of every test over gRPC.
#include "tests/server/test_server.h"

#include <grpcpp/create_channel.h>
#include <grpcpp/server_context.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <thread>

#include "engine/base/clock.h"
#include "engine/model/checkpoint/tp.h"
#include "engine/worker/in_process_transport.h"
#include "google/rpc/error_details.pb.h"
#include "google/rpc/status.pb.h"
#include "kernels/score_words.h"
#include "server/call/serving_model.h"
#include "server/metrics/metrics.h"
#include "server/session/session_transfer.h"

namespace quire {
namespace {

std::string Utf8(int code_point) {
  if (code_point < 0x80) return std::string(1, static_cast<char>(code_point));
  return {static_cast<char>(0xC0 | (code_point >> 6)), static_cast<char>(0x80 | (code_point & 63))};
}

// A byte in the alphabet of byte-level BPE: printable Latin-1 as itself, the other bytes in order
// from U+0100.
std::string ByteName(int byte) {
  int next = 256;
  for (int b = 0; b < 256; ++b) {
    const bool printable =
        (b >= '!' && b <= '~') || (b >= 0xA1 && b <= 0xAC) || (b >= 0xAE && b <= 0xFF);
    const int code_point = printable ? b : next++;
    if (b == byte) return Utf8(code_point);
  }
  return "";
}

nlohmann::json SpecialToken(int id, const std::string& content) {
  return {{"id", id},        {"content", content},  {"single_word", false}, {"lstrip", false},
          {"rstrip", false}, {"normalized", false}, {"special", true}};
}

std::unique_ptr<const Tokenizer> ByteTokenizer(const std::string& split_pattern) {
  nlohmann::json vocab;
  for (int byte = 0; byte < 256; ++byte) vocab[ByteName(byte)] = byte;
  const nlohmann::json byte_level = {{"type", "ByteLevel"},
                                     {"add_prefix_space", false},
                                     {"trim_offsets", false},
                                     {"use_regex", split_pattern.empty()}};
  const nlohmann::json split = {{"type", "Split"},
                                {"pattern", {{"Regex", split_pattern}}},
                                {"behavior", "Isolated"},
                                {"invert", false}};
  const nlohmann::json both = {{"type", "Sequence"},
                               {"pretokenizers", nlohmann::json::array({split, byte_level})}};
  nlohmann::json single = {{{"SpecialToken", {{"id", "<s>"}, {"type_id", 0}}}},
                           {{"Sequence", {{"id", "A"}, {"type_id", 0}}}}};
  nlohmann::json pair = {{{"Sequence", {{"id", "A"}, {"type_id", 0}}}},
                         {{"Sequence", {{"id", "B"}, {"type_id", 1}}}}};
  nlohmann::json json = {
      {"version", "1.0"},
      {"truncation", nullptr},
      {"padding", nullptr},
      {"added_tokens", {SpecialToken(kTestBos, "<s>"), SpecialToken(kTestEos, "</s>")}},
      {"normalizer", nullptr},
      {"pre_tokenizer", split_pattern.empty() ? byte_level : both},
      {"post_processor",
       {{"type", "TemplateProcessing"},
        {"single", single},
        {"pair", pair},
        {"special_tokens", {{"<s>", {{"id", "<s>"}, {"ids", {kTestBos}}, {"tokens", {"<s>"}}}}}}}},
      {"decoder", byte_level},
      {"model",
       {{"type", "BPE"},
        {"dropout", nullptr},
        {"unk_token", nullptr},
        {"continuing_subword_prefix", nullptr},
        {"end_of_word_suffix", nullptr},
        {"fuse_unk", false},
        {"byte_fallback", false},
        {"vocab", vocab},
        {"merges", nlohmann::json::array()}}}};
  const std::string path = std::filesystem::temp_directory_path() /
                           ("quire-test-tokenizer-" + std::to_string(getpid()) + ".json");
  std::ofstream(path) << json;
  auto tokenizer = Tokenizer::Load(path);
  std::filesystem::remove(path);
  EXPECT_TRUE(tokenizer.ok()) << tokenizer.status();
  return std::move(tokenizer).value();
}

google::rpc::Status Details(const grpc::Status& status) {
  google::rpc::Status details;
  details.ParseFromString(status.error_details());
  return details;
}

template <typename Detail>
Detail Find(const grpc::Status& status) {
  Detail found;
  const google::rpc::Status details = Details(status);
  for (const auto& any : details.details()) {
    if (any.UnpackTo(&found)) return found;
  }
  return {};
}

}  // namespace

void Gate::Allow(int64_t steps) {
  std::lock_guard lock(mutex_);
  allowed_ = steps;
  changed_.notify_all();
}

void Gate::Pass() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [this] { return allowed_ != 0; });
  if (allowed_ > 0) --allowed_;
  const std::chrono::milliseconds step = step_;
  lock.unlock();
  std::this_thread::sleep_for(step);
}

void Gate::Slow(std::chrono::milliseconds step) {
  std::lock_guard lock(mutex_);
  step_ = step;
}

ScriptCopies::ScriptCopies(int32_t num_blocks, std::shared_ptr<HostArena> arena)
    : arena_(std::move(arena)),
      pool_(static_cast<size_t>(num_blocks) * static_cast<size_t>(block_bytes())) {}

void ScriptCopies::Begin(CopyDirection direction, std::span<const BlockCopy> copies) {
  for (const BlockCopy& copy : copies) {
    const std::span<std::byte> page = arena_->page(copy.page);
    std::byte* const block = pool_.data() + copy.block * block_bytes();
    if (direction == CopyDirection::kStore) {
      std::copy_n(block, page.size(), page.data());
    } else {
      std::copy_n(page.data(), page.size(), block);
    }
  }
  begun_[static_cast<size_t>(direction)].push_back(static_cast<int32_t>(copies.size()));
}

CopyRunner::Outcome ScriptCopies::Finish(CopyDirection direction) {
  std::deque<int32_t>& begun = begun_[static_cast<size_t>(direction)];
  const int32_t count = begun.front();
  begun.pop_front();
  return {.num_good = count};
}

namespace {

class MetadataDoor final : public Door {
 public:
  Admission Admit(const CallFacts& facts, std::string_view) const override {
    Caller caller{.scopes = Scopes::All()};
    if (!facts.authorization.empty()) caller.tenant_name = facts.authorization[0];
    caller.tenant = caller.tenant_name.empty() ? 0 : std::stoull(caller.tenant_name);
    return {std::make_shared<const Caller>(std::move(caller)), Refused::kNo};
  }
};

}  // namespace

const Door* TenantInMetadata() {
  static const MetadataDoor door;
  return &door;
}

ScriptRunner::ScriptRunner(std::vector<int32_t> script, Gate* gate, uint64_t rank, bool timed,
                           std::unique_ptr<CopyRunner> copies)
    : script_(std::move(script)),
      gate_(gate),
      rank_(rank),
      timed_(timed),
      copies_(std::move(copies)) {}

namespace {

// The token if the mask has it, else the lowest one that it has.
int32_t Allowed(const StepPlan& plan, const RowMask& mask, int32_t token) {
  const auto has = [&](int32_t id) {
    return (plan.mask_words[mask.begin + static_cast<size_t>(id / 32)] >> (id % 32) & 1) != 0;
  };
  if (has(token)) return token;
  for (token = 0; token < kTestVocab - 1 && !has(token);) ++token;
  return token;
}

// A score of rank 1, with the tokens after it as the next likely ones.
void WriteScore(int32_t token, float logprob, const StepReading& reading, uint32_t* out) {
  const auto number = [&](int32_t rank) {
    return std::bit_cast<uint32_t>(logprob - static_cast<float>(rank));
  };
  for (const uint32_t word : {static_cast<uint32_t>(token), number(0), 1u}) *out++ = word;
  for (int32_t i = 0; i < reading.num_top; ++i) {
    *out++ = static_cast<uint32_t>(token + i);
    *out++ = number(i);
  }
}

void WritePromptScores(const StepReading& reading, std::vector<uint32_t>& words) {
  const auto stride = static_cast<uint32_t>(ScoreWords(reading.num_top, reading.num_ids));
  for (uint32_t at = 0; at < reading.words; at += stride) {
    WriteScore(1, -0.5f, reading, words.data() + reading.begin + at);
  }
}

}  // namespace

void ScriptRunner::Run(const StepPlan& plan, StepResult& result) {
  if (timed_) result.started_ns = SteadyNowNs();
  if (!plan.shutdown) gate_->Pass();
  result.step = plan.step;
  result.checksum = gate_->broken() ? rank_ : 0;
  result.samples.clear();
  for (const NewRow& row : plan.new_rows) {
    if (static_cast<size_t>(row.row) >= num_prompt_.size()) num_prompt_.resize(row.row + 1);
    num_prompt_[static_cast<size_t>(row.row)] = row.num_prompt;
  }
  result.reading_words.assign(plan.reading_words(), 0);
  for (const StepReading& of_prompt : plan.readings) {
    if (of_prompt.kind != StepReading::Kind::kPrompt) continue;
    WritePromptScores(of_prompt, result.reading_words);
  }
  auto mask = plan.masks.begin();
  auto reading = plan.readings.begin();
  for (const RowWork& work : plan.work) {
    for (int32_t i = work.sample - 1; i >= 0; --i) {
      const int32_t k = work.start + work.count - i - num_prompt_[static_cast<size_t>(work.row)];
      int32_t token = script_[static_cast<size_t>(k) % script_.size()];
      if (mask != plan.masks.end() && mask->row == work.row) token = Allowed(plan, *mask++, token);
      result.samples.push_back({work.row,
                                {.token = token,
                                 .logprob = -static_cast<float>(k) - 0.5f,
                                 .nonfinite = gate_->spoiled() ? 1 : 0}});
    }
    if (work.sample == 0) continue;
    const auto index = static_cast<int32_t>(&work - plan.work.data());
    while (reading != plan.readings.end() && reading->work < index) ++reading;
    const bool reads = reading != plan.readings.end() && reading->work == index;
    if (reads && reading->kind == StepReading::Kind::kDrawn) {
      const SampleResult& drawn = result.samples.back().result;
      WriteScore(drawn.token, drawn.logprob, *reading,
                 result.reading_words.data() + reading->begin);
    }
  }
  if (timed_) result.finished_ns = SteadyNowNs();
}

TestServer::TestServer(TestServerOptions options) : options_(std::move(options)) {
  options_.front.port = 0;
  if (options_.front.text_threads == 0) options_.front.text_threads = 1;
  std::vector<int32_t> script = options_.script_ids;
  if (script.empty()) {
    for (const char c : options_.script) script.push_back(static_cast<uint8_t>(c));
  }
  model_.name = "test-model";
  model_.device_description = "script";
  if (options_.tokenizer) model_.tokenizer = ByteTokenizer(options_.split_pattern);
  if (!options_.chat_template.empty()) {
    auto parsed = ChatTemplates::Of(
        options_.chat_template,
        {{"bos_token", jinja::Value::Of("<s>")}, {"eos_token", jinja::Value::Of("</s>")}});
    EXPECT_TRUE(parsed.ok()) << parsed.status();
    model_.chat_templates = std::move(parsed).value();
  }
  model_.reasoning_format = FindReasoningFormat(options_.reasoning_parser);
  model_.call_format = FindCallFormat(options_.tool_call_parser);
  EngineSetup& setup = model_.setup;
  setup.model.architecture = "ScriptForCausalLM";
  setup.model.vocab_size = kTestVocab;
  setup.model.eos_token_ids = {kTestEos};
  setup.model.generation = options_.generation;
  setup.config.max_num_seqs = options_.max_num_seqs;
  setup.config.tensor_parallel_size = 1;
  setup.memory.num_blocks = options_.num_blocks;
  setup.memory.block_size = 16;
  setup.memory.parts = {{"weights", 1000}, {"kv_cache", 2000}};
  setup.scheduler = {.num_blocks = options_.num_blocks,
                     .block_size = 16,
                     .max_model_len = options_.max_model_len,
                     .vocab_size = kTestVocab,
                     .max_num_seqs = options_.max_num_seqs,
                     .max_num_batched_tokens = 512,
                     .max_num_queued_reqs = options_.max_num_queued_reqs,
                     .num_pages = options_.num_pages,
                     .sessions = options_.sessions};
  setup.scheduler.sessions.max_model_len = options_.max_model_len;
  setup.limits = {.max_num_queued_reqs = options_.max_num_queued_reqs,
                  .max_num_queued_tokens = options_.max_num_queued_tokens,
                  .max_model_len = options_.max_model_len};
  model_.identity = options_.model_identity;
  PlanKv();
  MakeArenas();
  metrics_ = std::make_unique<ServerMetrics>(model_.name);
  front_ = GrpcFront::Create(options_.front, &model_, metrics_.get(), options_.tracer);
  std::vector<std::unique_ptr<StepRunner>> runners;
  for (int rank = 0; rank < options_.ranks; ++rank) {
    std::unique_ptr<CopyRunner> copies;
    if (!arenas_.empty()) {
      copies =
          std::make_unique<ScriptCopies>(options_.num_blocks, arenas_[static_cast<size_t>(rank)]);
    }
    runners.push_back(std::make_unique<ScriptRunner>(script, &gate_, static_cast<uint64_t>(rank),
                                                     options_.timed_steps, std::move(copies)));
  }
  engine_ = std::make_unique<Engine>(setup.scheduler, setup.limits,
                                     std::make_unique<InProcessTransport>(std::move(runners), 2),
                                     front_.get(), /*graph_sizes=*/std::vector<int32_t>());
  OpenArchive();
  OpenJobs();
  const absl::Status started = front_->Start(engine_.get(), arenas_, archive_.get(), jobs_.get());
  EXPECT_TRUE(started.ok()) << started;
  channel_ = NewChannel();
  inference_ = v1::Inference::NewStub(channel_);
  control_ = v1::Control::NewStub(channel_);
  sessions_ = v1::Sessions::NewStub(channel_);
  jobs_stub_ = v1::Jobs::NewStub(channel_);
}

void TestServer::PlanKv() {
  EngineSetup& setup = model_.setup;
  const int heads = options_.num_kv_heads > 0 ? options_.num_kv_heads : options_.ranks;
  const ShardRange held = KvShard(heads, {.rank = 0, .size = options_.ranks});
  setup.model.num_kv_heads = heads;
  setup.memory.ranks = options_.ranks;
  setup.kv_layout = {.num_layers = 1,
                     .num_kv_heads = static_cast<int32_t>(held.count),
                     .head_dim = 2,
                     .block_size = 16,
                     .dtype = DType::kF32};
  setup.scheduler.tiering.block_bytes = setup.kv_layout.block_bytes() * options_.ranks;
}

void TestServer::MakeArenas() {
  for (int rank = 0; rank < options_.ranks && options_.num_pages > 0; ++rank) {
    auto arena = HostArena::Create();
    EXPECT_TRUE(arena.ok()) << arena.status();
    arenas_.push_back(std::make_shared<HostArena>(*std::move(arena)));
    EXPECT_TRUE(
        arenas_.back()->Allocate({options_.num_pages, model_.setup.kv_layout.block_bytes()}).ok());
  }
}

void TestServer::FillPages() {
  const int heads = model_.setup.model.num_kv_heads;
  const auto head_bytes = static_cast<size_t>(model_.setup.kv_layout.block_bytes() /
                                              model_.setup.kv_layout.num_kv_heads / 2);
  for (int rank = 0; rank < options_.ranks; ++rank) {
    for (PageId page = 0; page < options_.num_pages; ++page) {
      const std::span<std::byte> bytes = arena(rank).page(page);
      const size_t held = bytes.size() / 2 / head_bytes;
      for (size_t i = 0; i < bytes.size(); ++i) {
        const size_t kv = i / (held * head_bytes);
        const size_t head =
            static_cast<size_t>(rank * heads / options_.ranks) + i / head_bytes % held;
        const size_t value =
            static_cast<size_t>(page) * 31 + kv * 101 + head * 57 + i % head_bytes * 7;
        bytes[i] = static_cast<std::byte>(value + 1);
      }
    }
  }
}

void TestServer::ExpectEqualReplicas() {
  const int replicas = std::max(1, options_.ranks / model_.setup.model.num_kv_heads);
  for (int rank = 0; rank < options_.ranks; ++rank) {
    for (PageId page = 0; page < options_.num_pages; ++page) {
      EXPECT_TRUE(
          std::ranges::equal(arena(rank).page(page), arena(rank / replicas * replicas).page(page)))
          << "rank " << rank << " page " << page;
    }
  }
}

void TestServer::OpenArchive() {
  if (options_.session_dir.empty()) return;
  auto archive = SessionArchive::Open({.folder = options_.session_dir,
                                       .max_bytes = options_.session_dir_size,
                                       .model = model_.name,
                                       .model_identity = model_.identity,
                                       .limits = FileLimits(model_)},
                                      &metrics_->archive(), options_.session_disk);
  ASSERT_TRUE(archive.ok()) << archive.status();
  archive_ = *std::move(archive);
  archive_->Adopt(engine_.get(), arenas_);
}

void TestServer::OpenJobs() {
  if (options_.job_disk == nullptr) return;
  auto jobs = JobRunner::Open(options_.job_limits, &metrics_->jobs(), options_.job_disk);
  ASSERT_TRUE(jobs.ok()) << jobs.status();
  jobs_ = *std::move(jobs);
}

TestServer::~TestServer() {
  gate_.Allow(-1);
  front_->Shutdown(5);
  if (archive_ != nullptr) archive_->Stop();
  engine_.reset();
}

std::string TestServer::address() const {
  return options_.front.uds.empty() ? "127.0.0.1:" + std::to_string(front_->port())
                                    : "unix:" + options_.front.uds;
}

std::shared_ptr<grpc::Channel> TestServer::NewChannel(bool fixed_window) const {
  grpc::ChannelArguments arguments;
  arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  if (fixed_window) arguments.SetInt(GRPC_ARG_HTTP2_BDP_PROBE, 0);
  arguments.SetInt(GRPC_ARG_INITIAL_RECONNECT_BACKOFF_MS, 100);
  arguments.SetInt(GRPC_ARG_MAX_RECONNECT_BACKOFF_MS, 200);
  return grpc::CreateCustomChannel(address(), grpc::InsecureChannelCredentials(), arguments);
}

v1::Load TestServer::Load() {
  grpc::ClientContext context;
  v1::Load load;
  const grpc::Status status = control_->GetLoad(&context, {}, &load);
  EXPECT_TRUE(status.ok()) << status.error_message();
  return load;
}

void TestServer::ExpectNothingLeft() {
  // Blocks return when the steps in flight have retired, possibly after the end of the request; and
  // a request whose text waits for a thread starts after a moment in which nothing runs.
  v1::Load load;
  EXPECT_TRUE(Eventually([&] {
    const SchedulerLoad of_engine = engine_->Stats().load;
    load = Load();
    return engine_->Idle() && front_->open_streams() == 0 &&
           of_engine.free_blocks == of_engine.total_blocks &&
           load.free_blocks() == load.total_blocks() && load.running_requests() == 0 &&
           load.waiting_requests() == 0 && load.open_streams() == 0;
  }));
  EXPECT_EQ(load.free_blocks(), load.total_blocks());
  EXPECT_EQ(load.total_blocks(), static_cast<uint32_t>(options_.num_blocks - 1));
  EXPECT_EQ(load.running_requests(), 0u);
  EXPECT_EQ(load.waiting_requests(), 0u);
  EXPECT_EQ(load.open_streams(), 0u);
}

bool TestServer::Eventually(const std::function<bool()>& condition) {
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(60);
  while (!condition()) {
    if (std::chrono::steady_clock::now() > end) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return true;
}

v1::GenerateRequest AskFor(uint32_t max_tokens) {
  v1::GenerateRequest request;
  request.set_text("hi");
  request.mutable_stop()->set_max_tokens(max_tokens);
  return request;
}

StreamedOutput Stream(v1::Inference::Stub& stub, const v1::GenerateRequest& request,
                      grpc::ClientContext* context) {
  grpc::ClientContext own;
  StreamedOutput out;
  const auto reader = stub.Generate(context != nullptr ? context : &own, request);
  v1::GenerateResponse frame;
  while (reader->Read(&frame)) {
    out.frames.push_back(frame);
    if (frame.has_accepted()) out.accepted = frame.accepted();
    if (frame.has_finished()) out.finished = frame.finished();
    if (!frame.has_tokens()) continue;
    const v1::TokenDelta& delta = frame.tokens();
    out.text += delta.text();
    out.reasoning += delta.reasoning();
    for (const v1::ToolCallDelta& part : delta.tool_calls()) {
      if (part.index() == out.calls.size()) {
        out.calls.push_back(part);
      } else {
        out.calls.at(part.index()).mutable_arguments()->append(part.arguments());
      }
    }
    out.ids.insert(out.ids.end(), delta.token_ids().begin(), delta.token_ids().end());
    out.logprobs.insert(out.logprobs.end(), delta.logprobs().begin(), delta.logprobs().end());
    const bool ids_asked = !request.output().has_token_ids() || request.output().token_ids();
    out.gap_free &= !ids_asked || delta.cumulative_tokens() == out.ids.size();
  }
  out.status = reader->Finish();
  return out;
}

std::string ViolatedField(const grpc::Status& status) {
  const auto bad = Find<google::rpc::BadRequest>(status);
  return bad.field_violations_size() == 0 ? "" : bad.field_violations(0).field();
}

std::string Reason(const grpc::Status& status) {
  return Find<google::rpc::ErrorInfo>(status).reason();
}

std::string Fact(const grpc::Status& status, const std::string& name) {
  const auto info = Find<google::rpc::ErrorInfo>(status);
  const auto found = info.metadata().find(name);
  return found == info.metadata().end() ? "" : found->second;
}

double RetrySeconds(const grpc::Status& status) {
  const auto retry = Find<google::rpc::RetryInfo>(status).retry_delay();
  return static_cast<double>(retry.seconds()) + 1e-9 * retry.nanos();
}

int64_t ResidentBytes() {
  std::ifstream file("/proc/self/statm");
  int64_t total = 0;
  int64_t resident = 0;
  file >> total >> resident;
  return resident * sysconf(_SC_PAGESIZE);
}

}  // namespace quire
