// The C library's hook for metadata, which may answer later and from any thread. The C++ library's
// own wrapper of it answers at once, and refuses listeners without TLS.
#include "server/identity/call_gate.h"

#include <grpc/grpc.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <mutex>
#include <span>
#include <string>
#include <thread>
#include <utility>

#include "engine/base/clock.h"
#include "kernels/check.h"
#include "server/identity/call_facts.h"

namespace quire {
namespace {

constexpr int64_t kMinuteNs = 60'000'000'000;

// Where a decision goes.
struct Answer {
  grpc_process_auth_metadata_done_cb done;
  void* user_data;

  void Give(Refused refused) const {
    if (refused == Refused::kNo) {
      return done(user_data, nullptr, 0, nullptr, 0, GRPC_STATUS_OK, nullptr);
    }
    const absl::Status status = StatusOf(refused);
    done(user_data, nullptr, 0, nullptr, 0, static_cast<grpc_status_code>(status.code()),
         std::string(status.message()).c_str());
  }
};

}  // namespace

struct CallGate::State {
  State(const Door* d, AuthMetrics* m) : door(*d), metrics(*m) {
    thread = std::thread([this] { Run(); });
    published.store(this, std::memory_order_release);
  }

  void Decide(const grpc_auth_context* context, std::span<const grpc_metadata> metadata,
              const Answer& answer) {
    std::string_view method;
    const CallFacts facts = FactsOf(context, metadata, &method);
    const Admission admission = door.Admit(facts, method);
    if (admission.ok()) return answer.Give(Refused::kNo);
    metrics.Refused(Name(admission.refused));
    if (!Slow(answer, admission.refused)) answer.Give(admission.refused);
  }

  // Whether the answer waits.
  bool Slow(const Answer& answer, Refused refused) {
    const int64_t now_ns = SteadyNowNs();
    const std::lock_guard lock(mutex);
    if (now_ns - minute_ns >= kMinuteNs) {
      minute_ns = now_ns;
      in_minute = 0;
    }
    ++in_minute;
    if (open || in_minute <= kQuickRefusals || waiting.size() >= kMaxSlow) return false;
    waiting.push_back({now_ns + kSlowNs, answer, refused});
    changed.notify_one();
    return true;
  }

  void Run() {
    std::unique_lock lock(mutex);
    while (!stopping) {
      if (waiting.empty()) {
        changed.wait(lock);
        continue;
      }
      const int64_t left_ns = waiting.front().due_ns - SteadyNowNs();
      if (left_ns > 0 && !open) {
        changed.wait_for(lock, std::chrono::nanoseconds(left_ns));
        continue;
      }
      const Waiting next = waiting.front();
      waiting.pop_front();
      lock.unlock();
      next.answer.Give(next.refused);
      lock.lock();
    }
  }

  struct Waiting {
    int64_t due_ns;
    Answer answer;
    Refused refused;
  };

  const Door& door;
  AuthMetrics& metrics;
  // This, for the library's threads: an order that the thread sanitizer sees, as in HealthWatch.
  std::atomic<State*> published{nullptr};
  std::mutex mutex;
  std::condition_variable changed;
  // Under mutex.
  std::deque<Waiting> waiting;  // by due_ns
  int64_t minute_ns = 0;        // when the minute began in which refusals are counted
  int in_minute = 0;
  bool open = false;
  bool stopping = false;
  std::thread thread;  // last, because it uses the members above
};

CallGate::CallGate(const Door* door, AuthMetrics* metrics)
    : state_(std::make_unique<State>(door, metrics)) {}

CallGate::~CallGate() {
  Open();
  {
    const std::lock_guard lock(state_->mutex);
    state_->stopping = true;
  }
  state_->changed.notify_all();
  state_->thread.join();
}

void CallGate::Guard(grpc_server_credentials* credentials) {
  grpc_server_credentials_set_auth_metadata_processor(
      credentials, {.process =
                        [](void* state, grpc_auth_context* context, const grpc_metadata* metadata,
                           size_t count, grpc_process_auth_metadata_done_cb done, void* user_data) {
                          auto& gate = static_cast<State*>(state)->published;
                          gate.load(std::memory_order_acquire)
                              ->Decide(context, {metadata, count}, {done, user_data});
                        },
                    .destroy = nullptr,
                    .state = state_.get()});
}

void CallGate::Open() {
  const std::lock_guard lock(state_->mutex);
  state_->open = true;
  state_->changed.notify_all();
}

namespace {

// The server keeps the C part, which the gate must outlive.
class Guarded final : public grpc::ServerCredentials {
 public:
  Guarded(grpc_server_credentials* credentials, CallGate* gate) : credentials_(credentials) {
    gate->Guard(credentials_);
  }
  ~Guarded() override { grpc_server_credentials_release(credentials_); }

  void SetAuthMetadataProcessor(
      const std::shared_ptr<grpc::AuthMetadataProcessor>& processor) override {
    CHECK(processor == nullptr);
  }

 private:
  int AddPortToServer(const std::string& address, grpc_server* server) override {
    return grpc_server_add_http2_port(server, address.c_str(), credentials_);
  }

  grpc_server_credentials* const credentials_;
};

}  // namespace

std::shared_ptr<grpc::ServerCredentials> GuardedCredentials(grpc_server_credentials* credentials,
                                                            CallGate* gate) {
  return std::make_shared<Guarded>(credentials, gate);
}

std::shared_ptr<grpc::ServerCredentials> PlaintextCredentials(CallGate* gate) {
  return GuardedCredentials(grpc_insecure_server_credentials_create(), gate);
}

}  // namespace quire
