// The stub: one timer thread, and a reactor per call that asks it for the moment of each frame.
#include "tests/clients/load/stub_server.h"

#include <grpcpp/server_builder.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <map>
#include <mutex>
#include <thread>

namespace quire::load {
namespace {

int64_t NowNs() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

int64_t Ns(double seconds) { return static_cast<int64_t>(seconds * 1e9); }

// Calls functions at given times, one after the other, on a thread of its own.
class Timer {
 public:
  Timer() : thread_([this] { Run(); }) {}
  ~Timer() {
    {
      std::lock_guard lock(mutex_);
      stop_ = true;
    }
    changed_.notify_all();
    thread_.join();
  }
  // A function that is not due by the timer's end is not called.
  void At(int64_t ns, std::function<void()> what) {
    {
      std::lock_guard lock(mutex_);
      due_.emplace(ns, std::move(what));
    }
    changed_.notify_all();
  }

 private:
  void Run() {
    std::unique_lock lock(mutex_);
    while (!stop_) {
      if (due_.empty()) {
        changed_.wait(lock);
      } else if (const int64_t next = due_.begin()->first; next > NowNs()) {
        changed_.wait_until(lock,
                            std::chrono::steady_clock::time_point(std::chrono::nanoseconds(next)));
      } else {
        const auto what = std::move(due_.extract(due_.begin()).mapped());
        lock.unlock();
        what();
        lock.lock();
      }
    }
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  std::multimap<int64_t, std::function<void()>> due_;
  bool stop_ = false;
  std::thread thread_;  // last: it uses the members above
};

// Steady time less the stalls so far.
class StallingClock {
 public:
  explicit StallingClock(std::vector<std::pair<double, double>> stalls)
      : stalls_(std::move(stalls)) {}
  void Start(int64_t now_ns) { start_ns_ = now_ns; }
  int64_t FromSteady(int64_t ns) const {
    int64_t stood = 0;
    for (const auto& [begin, end] : stalls_) {
      const int64_t into = ns - start_ns_ - Ns(begin);
      stood += std::clamp<int64_t>(into, 0, Ns(end) - Ns(begin));
    }
    return ns - stood;
  }
  int64_t ToSteady(int64_t ns) const {
    for (const auto& [begin, end] : stalls_) {
      if (ns >= start_ns_ + Ns(begin)) ns += Ns(end) - Ns(begin);
    }
    return ns;
  }

 private:
  const std::vector<std::pair<double, double>> stalls_;
  int64_t start_ns_ = 0;
};

}  // namespace

StubReply SteadyReply(double first_seconds, int32_t num_frames, double gap_seconds) {
  StubReply reply;
  reply.first_seconds = first_seconds;
  reply.gap_seconds.assign(static_cast<size_t>(num_frames - 1), gap_seconds);
  return reply;
}

struct StubServer::State : v1::Inference::CallbackService, v1::Control::CallbackService {
  class Call;

  explicit State(StubOptions o) : options(std::move(o)), clock(options.stalls) {}

  grpc::ServerWriteReactor<v1::GenerateResponse>* Generate(
      grpc::CallbackServerContext*, const v1::GenerateRequest* request) override;
  grpc::ServerUnaryReactor* GetServerInfo(grpc::CallbackServerContext* context,
                                          const v1::GetServerInfoRequest*,
                                          v1::ServerInfo* info) override;
  grpc::ServerUnaryReactor* GetModelInfo(grpc::CallbackServerContext* context,
                                         const v1::GetModelInfoRequest*,
                                         v1::ModelInfo* info) override;
  // Returns when every call has ended.
  void Die() { server->Shutdown(std::chrono::system_clock::now()); }
  // On the timer's thread, which the calls need to end.
  void StartToDie();

  const StubOptions options;
  std::atomic<double> worst_lateness{0};
  grpc::CallbackGenericService nothing;  // UNIMPLEMENTED for every method
  std::mutex mutex;                      // guards the next six
  StallingClock clock;
  bool started = false;
  std::vector<StubCall> calls;
  int open_calls = 0;
  int peak_open_calls = 0;
  bool ending = false;
  std::thread death;
  int port = 0;
  std::unique_ptr<grpc::Server> server;
  Timer timer;  // last: its functions use the members above
};

// One stream. Deletes itself when gRPC is done with it.
class StubServer::State::Call final : public grpc::ServerWriteReactor<v1::GenerateResponse> {
 public:
  Call(State* state, const v1::GenerateRequest& request, int64_t now_ns) : state_(*state) {
    std::lock_guard lock(state_.mutex);
    index_ = state_.calls.size();
    state_.calls.push_back({.arrived_ns = now_ns});
    state_.peak_open_calls = std::max(state_.peak_open_calls, ++state_.open_calls);
    due_ns_ = state_.clock.FromSteady(now_ns);
    reply_ = state_.options.script(index_, request);
    prompt_end_ = static_cast<uint32_t>(request.token_ids().ids_size());
    JoinSession(request);
    Script();
    StartWrite(&frames_[0].first);
  }

  void OnWriteDone(bool ok) override {
    if (!ok || next_ == frames_.size()) {
      {
        // Before the client can know of the end and begin another.
        std::lock_guard lock(state_.mutex);
        --state_.open_calls;
        if (!session_.empty()) state_.options.sessions->EndTurn(session_, prompt_end_ + tokens_);
      }
      Finish(grpc::Status(ok ? reply_.code : grpc::StatusCode::CANCELLED, reply_.message));
      return;
    }
    due_ns_ += Ns(frames_[next_].second);
    std::lock_guard lock(state_.mutex);
    state_.timer.At(state_.clock.ToSteady(due_ns_), [this] { Write(); });
  }
  void OnCancel() override {
    std::lock_guard lock(state_.mutex);
    state_.calls[index_].cancelled = true;
  }
  void OnDone() override { delete this; }

 private:
  void JoinSession(const v1::GenerateRequest& request) {
    if (state_.options.sessions == nullptr || !request.has_session_id()) return;
    const grpc::Status status = state_.options.sessions->BeginTurn(request, &prompt_end_);
    if (status.ok()) {
      session_ = request.session_id();
      return;
    }
    reply_.no_frames = true;
    reply_.code = status.error_code();
    reply_.message = status.error_message();
  }

  // The frames in order, each with its distance from the one before.
  void Script() {
    v1::GenerateResponse frame;
    frame.mutable_accepted()->set_model(state_.options.model);
    frame.mutable_accepted()->set_prompt_tokens(prompt_end_);
    frames_.emplace_back(frame, 0.0);
    const size_t num_frames = reply_.no_frames ? 0 : reply_.gap_seconds.size() + 1;
    for (size_t i = 0; i < num_frames; ++i) {
      const int32_t count = i < reply_.frame_tokens.size() ? reply_.frame_tokens[i] : 1;
      tokens_ += static_cast<uint32_t>(count);
      frame.Clear();
      for (int32_t k = 0; k < count; ++k) frame.mutable_tokens()->add_token_ids(7);
      frame.mutable_tokens()->set_text(" word");
      frame.mutable_tokens()->set_cumulative_tokens(tokens_);
      const double gap = i == 0 ? reply_.first_seconds : reply_.gap_seconds[i - 1];
      const bool middle = i == num_frames / 2;
      if (middle && reply_.fault == StubFault::kLostFrame) continue;
      frames_.emplace_back(frame, gap);
      if (middle && reply_.fault == StubFault::kRepeatedFrame) frames_.emplace_back(frame, 0.0);
    }
    if (reply_.code != grpc::StatusCode::OK || reply_.fault == StubFault::kNoFinished) return;
    const v1::GenerateResponse last = frame;
    frame.Clear();
    v1::Finished& finished = *frame.mutable_finished();
    finished.set_reason(v1::FINISH_REASON_MAX_TOKENS);
    finished.mutable_usage()->set_prompt_tokens(prompt_end_);
    finished.mutable_usage()->set_completion_tokens(tokens_);
    *finished.mutable_residency() = reply_.residency;
    if (!session_.empty()) {
      const bool wrong = reply_.fault == StubFault::kWrongPosition;
      finished.set_position(prompt_end_ + tokens_ + (wrong ? 1 : 0));
    }
    finished.mutable_timings()->set_queue_seconds(reply_.queue_seconds);
    finished.mutable_timings()->set_first_token_seconds(reply_.first_seconds);
    frames_.emplace_back(frame, 0.0);
    if (reply_.fault == StubFault::kFrameAfterFinished) frames_.emplace_back(last, 0.0);
  }

  // On the timer's thread.
  void Write() {
    const int64_t now_ns = NowNs();
    {
      std::lock_guard lock(state_.mutex);
      const double late = 1e-9 * static_cast<double>(now_ns - state_.clock.ToSteady(due_ns_));
      if (late > state_.worst_lateness) state_.worst_lateness = late;
      if (frames_[next_].first.has_tokens()) state_.calls[index_].frame_ns.push_back(now_ns);
    }
    StartWrite(&frames_[next_++].first);
  }

  State& state_;
  size_t index_ = 0;
  StubReply reply_;
  std::string session_;      // a turn of it; "": none
  uint32_t prompt_end_ = 0;  // of the session, if there is one
  uint32_t tokens_ = 0;      // of the answer
  std::vector<std::pair<v1::GenerateResponse, double>> frames_;
  size_t next_ = 1;     // the first goes out in the constructor
  int64_t due_ns_ = 0;  // of the frame written last, on the stub's clock
};

grpc::ServerWriteReactor<v1::GenerateResponse>* StubServer::State::Generate(
    grpc::CallbackServerContext*, const v1::GenerateRequest* request) {
  const int64_t now_ns = NowNs();
  {
    std::lock_guard lock(mutex);
    if (!started) {
      started = true;
      clock.Start(now_ns);
      if (options.dies_after_seconds > 0) {
        timer.At(now_ns + Ns(options.dies_after_seconds), [this] { StartToDie(); });
      }
    }
  }
  return new Call(this, *request, now_ns);
}

void StubServer::State::StartToDie() {
  std::lock_guard lock(mutex);
  if (!ending) death = std::thread([this] { Die(); });
}

grpc::ServerUnaryReactor* StubServer::State::GetServerInfo(grpc::CallbackServerContext* context,
                                                           const v1::GetServerInfoRequest*,
                                                           v1::ServerInfo* info) {
  info->set_version("0.0.0-stub");
  info->set_device("script");
  info->add_models(options.model);
  info->set_state(v1::ServerInfo::STATE_READY);
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  reactor->Finish(grpc::Status::OK);
  return reactor;
}

grpc::ServerUnaryReactor* StubServer::State::GetModelInfo(grpc::CallbackServerContext* context,
                                                          const v1::GetModelInfoRequest* request,
                                                          v1::ModelInfo* info) {
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  if (!request->model().empty() && request->model() != options.model) {
    reactor->Finish(grpc::Status(grpc::StatusCode::NOT_FOUND, "no such model"));
    return reactor;
  }
  info->set_model(options.model);
  info->set_vocab_size(1000);
  info->set_max_model_len(1 << 20);
  info->set_has_chat_template(true);
  reactor->Finish(grpc::Status::OK);
  return reactor;
}

StubServer::StubServer(StubOptions options) : state_(std::make_unique<State>(std::move(options))) {
  grpc::ServerBuilder builder;
  // Without it two stubs could share a port that was free a moment ago.
  builder.AddChannelArgument(GRPC_ARG_ALLOW_REUSEPORT, 0);
  builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(), &state_->port);
  if (!state_->options.wrong_service) {
    builder.RegisterService(static_cast<v1::Inference::CallbackService*>(state_.get()));
    builder.RegisterService(static_cast<v1::Control::CallbackService*>(state_.get()));
    if (state_->options.sessions != nullptr) builder.RegisterService(state_->options.sessions);
  } else {
    builder.RegisterCallbackGenericService(&state_->nothing);
  }
  state_->server = builder.BuildAndStart();
}

StubServer::~StubServer() {
  {
    std::lock_guard lock(state_->mutex);
    state_->ending = true;
  }
  if (state_->death.joinable()) state_->death.join();
  state_->Die();
}

std::string StubServer::address() const { return "127.0.0.1:" + std::to_string(state_->port); }

std::vector<StubCall> StubServer::calls() const {
  std::lock_guard lock(state_->mutex);
  return state_->calls;
}

double StubServer::worst_lateness_seconds() const { return state_->worst_lateness; }

int StubServer::peak_open_calls() const {
  std::lock_guard lock(state_->mutex);
  return state_->peak_open_calls;
}

}  // namespace quire::load
