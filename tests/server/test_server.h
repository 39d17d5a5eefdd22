// TestServer: a GrpcFront on a free port over the real Engine, with a worker that samples a script.
// Its tokenizer maps each byte to its value as token id, so 'a' is 97. Ids 256 and 257 are <s>
// (prepended to text) and </s> (end of sequence).
#pragma once

#include <grpcpp/channel.h>
#include <grpcpp/client_context.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "engine/engine.h"
#include "engine/worker/rank/step_runner.h"
#include "engine/worker/shm/host_arena.h"
#include "quire/v1/control.grpc.pb.h"
#include "quire/v1/inference.grpc.pb.h"
#include "quire/v1/jobs.grpc.pb.h"
#include "quire/v1/sessions.grpc.pb.h"
#include "server/front/grpc_front.h"
#include "server/jobs/job_runner.h"
#include "server/session/archive/session_archive.h"

namespace quire {

inline constexpr int32_t kTestBos = 256;
inline constexpr int32_t kTestEos = 257;
inline constexpr int32_t kTestVocab = 258;

// Lets a test stop and resume the worker.
class Gate {
 public:
  // Lets at most this many steps run until the next call; -1: any number.
  void Allow(int64_t steps);
  void Pass();  // called by the worker, once per step
  // Makes each further step take at least this long.
  void Slow(std::chrono::milliseconds step);
  // Makes every further sample NaN.
  void SpoilSamples() { spoiled_.store(true); }
  bool spoiled() const { return spoiled_.load(); }
  // Makes the ranks disagree, which the engine treats as the death of the worker group.
  void BreakRanks() { broken_.store(true); }
  bool broken() const { return broken_.load(); }

 private:
  std::atomic<bool> spoiled_{false};
  std::atomic<bool> broken_{false};
  std::mutex mutex_;
  std::condition_variable changed_;
  int64_t allowed_ = -1;
  std::chrono::milliseconds step_{0};
};

// Copies whole blocks between an arena and a pool that only it uses.
class ScriptCopies final : public CopyRunner {
 public:
  ScriptCopies(int32_t num_blocks, std::shared_ptr<HostArena> arena);
  int64_t block_bytes() const override { return arena_->shape().page_bytes; }
  void Begin(CopyDirection direction, std::span<const BlockCopy> copies) override;
  Outcome Finish(CopyDirection direction) override;

 private:
  const std::shared_ptr<HostArena> arena_;
  std::vector<std::byte> pool_;
  std::deque<int32_t> begun_[2];  // copies of each batch, by direction
};

// Samples the same tokens for every sequence: token k of the output is script[k % size], or, where
// a mask bars it, the lowest token of the mask. Its log probability is -k - 0.5.
class ScriptRunner final : public StepRunner {
 public:
  // `copies` may be null: no host memory.
  // `timed`: results say how long their step took, from which the engine predicts.
  ScriptRunner(std::vector<int32_t> script, Gate* gate, uint64_t rank, bool timed = false,
               std::unique_ptr<CopyRunner> copies = nullptr);
  void Run(const StepPlan& plan, StepResult& result) override;
  CopyRunner* copies() override { return copies_.get(); }

 private:
  const std::vector<int32_t> script_;
  Gate* const gate_;
  const uint64_t rank_;
  const bool timed_;
  const std::unique_ptr<CopyRunner> copies_;
  std::vector<int32_t> num_prompt_;  // by row
};

struct TestServerOptions {
  FrontOptions front;
  std::string script = "abcdefghij";  // bytes that the worker samples
  std::vector<int32_t> script_ids;    // instead of `script` when not empty
  int32_t num_blocks = 257;           // including the null block; 16 tokens each
  int32_t max_model_len = 2048;
  int32_t max_num_seqs = 64;
  int ranks = 1;
  bool timed_steps = false;  // as ScriptRunner says
  int num_kv_heads = 0;      // of the model; 0: one for each rank
  int32_t max_num_queued_reqs = 1024;
  int64_t max_num_queued_tokens = 1 << 20;
  std::string chat_template;                       // Jinja; empty: none
  std::string reasoning_parser, tool_call_parser;  // families; empty: not known
  bool tokenizer = true;
  std::string split_pattern;  // of the tokenizer, a regular expression; empty: GPT-2's
  GenerationDefaults generation;
  int32_t num_pages = 0;  // of host memory, for 16 tokens each
  SessionConfig sessions = {.max_sessions = 100,
                            .max_sessions_per_tenant = 50,
                            .max_session_tokens = 1 << 20,
                            .default_ttl_seconds = 3600,
                            .max_ttl_seconds = 86400,
                            .default_idle_offload_seconds = 3600,
                            .max_pinned_share = 0.25};
  uint64_t model_identity = 1;
  Tracer* tracer = nullptr;            // outlives the server; null: no call is traced
  std::string session_dir;             // empty: none
  std::shared_ptr<Disk> session_disk;  // instead of the folder's files
  int64_t session_dir_size = int64_t{1} << 40;
  std::shared_ptr<Disk> job_disk;  // null: no jobs
  JobRunner::Limits job_limits = {.max_bytes = int64_t{1} << 40};
};

// A door for FrontOptions: the call's metadata "authorization" names the tenant; none: tenant 0.
inline constexpr char kTestTenant[] = "authorization";
const Door* TenantInMetadata();

class TestServer {
 public:
  explicit TestServer(TestServerOptions options = {});
  ~TestServer();

  GrpcFront& front() { return *front_; }
  Engine& engine() { return *engine_; }
  Gate& gate() { return gate_; }
  std::string address() const;
  // A separate connection; with `fixed_window` it accepts at most 64 KiB of unread data.
  std::shared_ptr<grpc::Channel> NewChannel(bool fixed_window = false) const;
  v1::Inference::Stub& inference() { return *inference_; }
  v1::Control::Stub& control() { return *control_; }
  v1::Sessions::Stub& sessions() { return *sessions_; }
  v1::Jobs::Stub& jobs() { return *jobs_stub_; }
  std::shared_ptr<grpc::Channel> channel() { return channel_; }

  v1::Load Load();
  SessionArchive& archive() { return *archive_; }
  // The arena of a rank, to inspect its bytes.
  HostArena& arena(int rank) { return *arenas_[static_cast<size_t>(rank)]; }
  // Fills all pages with a known pattern, which differs between pages and between the places of a
  // block of the whole model: replicas of a head have the same bytes.
  void FillPages();
  // Expects that the ranks that hold the same head have the same bytes in all pages.
  void ExpectEqualReplicas();
  ServerMetrics& metrics() { return *metrics_; }
  // The metrics page.
  std::string Metrics() { return metrics_->Serialize(engine_->Stats()); }
  // Waits until the engine is idle, then expects that every block is free and no stream is open.
  void ExpectNothingLeft();
  // Waits for a condition that the server's threads make true; false after ten seconds.
  static bool Eventually(const std::function<bool()>& condition);

 private:
  void PlanKv();
  void MakeArenas();
  void OpenArchive();
  void OpenJobs();

  TestServerOptions options_;
  Gate gate_;
  ServingModel model_;
  std::unique_ptr<ServerMetrics> metrics_;
  HostArenas arenas_;
  std::unique_ptr<SessionArchive> archive_;
  std::unique_ptr<JobRunner> jobs_;
  std::unique_ptr<GrpcFront> front_;
  std::unique_ptr<Engine> engine_;
  std::shared_ptr<grpc::Channel> channel_;
  std::unique_ptr<v1::Inference::Stub> inference_;
  std::unique_ptr<v1::Control::Stub> control_;
  std::unique_ptr<v1::Sessions::Stub> sessions_;
  std::unique_ptr<v1::Jobs::Stub> jobs_stub_;
};

// A request for `max_tokens` tokens after the prompt "hi".
v1::GenerateRequest AskFor(uint32_t max_tokens);

// The frames and the status of one stream.
struct StreamedOutput {
  grpc::Status status;
  std::vector<v1::GenerateResponse> frames;
  std::string text;
  std::string reasoning;
  std::vector<v1::ToolCallDelta> calls;  // whole ones
  std::vector<uint32_t> ids;
  std::vector<float> logprobs;
  bool gap_free = true;  // every cumulative_tokens was right
  v1::Accepted accepted;
  v1::Finished finished;
};
StreamedOutput Stream(v1::Inference::Stub& stub, const v1::GenerateRequest& request,
                      grpc::ClientContext* context = nullptr);

// google.rpc details of an error: the violated field, the reason, and the retry delay.
std::string ViolatedField(const grpc::Status& status);
std::string Reason(const grpc::Status& status);
// A value of ErrorInfo.metadata; empty if missing.
std::string Fact(const grpc::Status& status, const std::string& name);
double RetrySeconds(const grpc::Status& status);

// Factor for limits of resident memory: sanitizers add shadow memory and quarantine.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
inline constexpr int64_t kMemoryFactor = 12;
#else
inline constexpr int64_t kMemoryFactor = 1;
#endif

// Divisor for the size of floods under sanitizers: the thread sanitizer locks around each of the
// library's locks, so a hundred thousand resets would take minutes.
#if defined(__SANITIZE_THREAD__)
inline constexpr int kFloodFactor = 100;
#elif defined(__SANITIZE_ADDRESS__)
inline constexpr int kFloodFactor = 12;
#else
inline constexpr int kFloodFactor = 1;
#endif

// Resident memory of this process.
int64_t ResidentBytes();

}  // namespace quire
