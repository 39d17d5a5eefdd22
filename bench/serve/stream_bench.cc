// Token events per second that the server streams over gRPC on two cores, client included: the
// real engine, detokeniser and front end over a worker whose tokens cost nothing. The client is a
// process of its own on the same two cores; it checks that every stream's cumulative_tokens has no
// gap and that its end comes once; otherwise there is no figure.
//
// A token normally has a frame of its own; it shares one only when the reader or the machine lags
// behind. So each paced rate has the tokens per frame (1.0: none shared) and the lateness of
// tokens; the unpaced run has the rate that coalescing makes possible. Prints one JSON object a
// line.
#include <grpcpp/grpcpp.h>
#include <sched.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "bench/serve/paced_server.h"
#include "engine/base/clock.h"
#include "kernels/check.h"
#include "quire/v1/inference.grpc.pb.h"

namespace quire {
namespace {

constexpr int kStreams = 256;
constexpr int kConnections = 4;
constexpr double kSeconds = 5;
// 0: unpaced.
constexpr int kPacedRates[] = {50'000, 100'000, 125'000, 150'000, 200'000, 0};
constexpr int32_t kUnpacedTokens = 3'000;  // a stream

constexpr int32_t kMaxTokens = 20'000;  // of a stream at any rate

struct Order {
  int32_t tokens = 0;  // of each stream; 0: quit
};

struct Report {
  int64_t tokens = 0;
  int64_t frames = 0;
  int64_t first_ns = 0;  // first token of any stream
  int64_t last_ns = 0;   // last token of any stream
  double gap_p50_ms = 0;
  double gap_p99_ms = 0;
  double cpu_seconds = 0;
  int32_t broken = 0;  // streams with a gap, an error or no end
};

double CpuSeconds() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  const auto seconds = [](const timeval& t) {
    return static_cast<double>(t.tv_sec) + 1e-6 * static_cast<double>(t.tv_usec);
  };
  return seconds(usage.ru_utime) + seconds(usage.ru_stime);
}

void PinToTwoCores() {
  cpu_set_t allowed;
  CPU_ZERO(&allowed);
  CHECK_EQ(sched_getaffinity(0, sizeof(allowed), &allowed), 0);
  cpu_set_t two;
  CPU_ZERO(&two);
  for (int cpu = 0; cpu < CPU_SETSIZE && CPU_COUNT(&two) < 2; ++cpu) {
    if (CPU_ISSET(cpu, &allowed)) CPU_SET(cpu, &two);
  }
  CHECK_EQ(sched_setaffinity(0, sizeof(two), &two), 0);
}

template <typename T>
bool Read(int fd, T* value) {
  return read(fd, value, sizeof(*value)) == static_cast<ssize_t>(sizeof(*value));
}

template <typename T>
void Write(int fd, const T& value) {
  CHECK_EQ(write(fd, &value, sizeof(value)), static_cast<ssize_t>(sizeof(value)));
}

// --- The client's process.

// Counts streams down.
class Latch {
 public:
  explicit Latch(int count) : count_(count) {}
  void Down() {
    std::lock_guard lock(mutex_);
    if (--count_ == 0) zero_.notify_all();
  }
  void Wait() {
    std::unique_lock lock(mutex_);
    zero_.wait(lock, [this] { return count_ == 0; });
  }

 private:
  std::mutex mutex_;
  std::condition_variable zero_;
  int count_;
};

class StreamReader final : public grpc::ClientReadReactor<v1::GenerateResponse> {
 public:
  StreamReader(v1::Inference::Stub* stub, int32_t tokens, Latch* done)
      : want_(tokens), done_(done) {
    request_.mutable_token_ids()->add_ids(1);
    request_.mutable_stop()->set_max_tokens(static_cast<uint32_t>(tokens));
    request_.mutable_stop()->set_ignore_eos(true);
    gaps_ns_.reserve(static_cast<size_t>(tokens));
    stub->async()->Generate(&context_, &request_, this);
    StartRead(&frame_);
    StartCall();
  }

  void OnReadDone(bool ok) override {
    if (!ok) return;
    if (frame_.has_tokens()) Take(frame_.tokens());
    ends_ += frame_.has_finished();
    StartRead(&frame_);
  }
  void OnDone(const grpc::Status& status) override {
    right_ &= status.ok() && ends_ == 1 && tokens_ == want_;
    done_->Down();
  }

  void AddTo(Report* report, std::vector<int64_t>* gaps_ns) const {
    report->tokens += tokens_;
    report->frames += frames_;
    report->broken += right_ ? 0 : 1;
    if (report->first_ns == 0 || first_ns_ < report->first_ns) report->first_ns = first_ns_;
    report->last_ns = std::max(report->last_ns, last_ns_);
    gaps_ns->insert(gaps_ns->end(), gaps_ns_.begin(), gaps_ns_.end());
  }

 private:
  void Take(const v1::TokenDelta& delta) {
    const int64_t now_ns = SteadyNowNs();
    ++frames_;
    tokens_ += delta.token_ids_size();
    right_ &= delta.cumulative_tokens() == static_cast<uint32_t>(tokens_);
    if (first_ns_ == 0) first_ns_ = now_ns;
    if (last_ns_ != 0) gaps_ns_.push_back(now_ns - last_ns_);
    last_ns_ = now_ns;
  }

  const int32_t want_;
  Latch* const done_;
  grpc::ClientContext context_;
  v1::GenerateRequest request_;
  v1::GenerateResponse frame_;
  std::vector<int64_t> gaps_ns_;
  int32_t tokens_ = 0;
  int32_t frames_ = 0;
  int32_t ends_ = 0;
  int64_t first_ns_ = 0;
  int64_t last_ns_ = 0;
  bool right_ = true;
};

Report RunClient(const std::vector<std::unique_ptr<v1::Inference::Stub>>& stubs, int32_t tokens) {
  const double cpu_before = CpuSeconds();
  Latch done(kStreams);
  std::vector<std::unique_ptr<StreamReader>> readers;
  for (int i = 0; i < kStreams; ++i) {
    readers.push_back(std::make_unique<StreamReader>(
        stubs[static_cast<size_t>(i) % stubs.size()].get(), tokens, &done));
  }
  done.Wait();
  Report report;
  std::vector<int64_t> gaps_ns;
  for (const auto& reader : readers) reader->AddTo(&report, &gaps_ns);
  std::sort(gaps_ns.begin(), gaps_ns.end());
  if (!gaps_ns.empty()) {
    report.gap_p50_ms = 1e-6 * static_cast<double>(gaps_ns[gaps_ns.size() / 2]);
    report.gap_p99_ms = 1e-6 * static_cast<double>(gaps_ns[gaps_ns.size() * 99 / 100]);
  }
  report.cpu_seconds = CpuSeconds() - cpu_before;
  return report;
}

int ClientMain(int orders, int reports) {
  int32_t port = 0;
  CHECK(Read(orders, &port));
  std::vector<std::unique_ptr<v1::Inference::Stub>> stubs;
  for (int i = 0; i < kConnections; ++i) {
    grpc::ChannelArguments arguments;
    arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
    stubs.push_back(v1::Inference::NewStub(grpc::CreateCustomChannel(
        "127.0.0.1:" + std::to_string(port), grpc::InsecureChannelCredentials(), arguments)));
  }
  Order order;
  while (Read(orders, &order) && order.tokens > 0) Write(reports, RunClient(stubs, order.tokens));
  return 0;
}

// --- The server's process.

// Nanoseconds of a step in which every stream gets one token; 0: unpaced.
int64_t StepFor(int tokens_per_second) {
  return tokens_per_second == 0 ? 0 : 1'000'000'000LL * kStreams / tokens_per_second;
}

void Print(int rate, const Report& report, double server_cpu) {
  const double seconds = 1e-9 * static_cast<double>(report.last_ns - report.first_ns);
  const auto tokens = static_cast<double>(report.tokens);
  std::printf(
      "{\"name\": \"stream\", \"paced_tokens_per_second\": %d, \"streams\": %d, \"connections\": "
      "%d, "
      "\"tokens\": %ld, \"tokens_per_second\": %.0f, \"frames_per_second\": %.0f, "
      "\"tokens_per_frame\": %.3f, \"gap_ms_p50\": %.2f, \"gap_ms_p99\": %.2f, "
      "\"server_cpu_us_per_token\": %.2f, \"client_cpu_us_per_token\": %.2f, \"gap_free\": true}\n",
      rate, kStreams, kConnections, report.tokens, tokens / seconds,
      static_cast<double>(report.frames) / seconds, tokens / static_cast<double>(report.frames),
      report.gap_p50_ms, report.gap_p99_ms, 1e6 * server_cpu / tokens,
      1e6 * report.cpu_seconds / tokens);
  std::fflush(stdout);
}

int ServerMain(int orders, int reports, std::vector<int> rates) {
  PacedServer server({.num_streams = kStreams, .max_model_len = 2 * kMaxTokens});
  CHECK(server.Start().ok());
  Write(orders, int32_t{server.port()});
  rates.insert(rates.begin(), 20'000);  // warms both sides up; not reported
  for (const int rate : rates) {
    server.SetStep(StepFor(rate));
    const double cpu_before = CpuSeconds();
    const int32_t tokens =
        rate == 0 ? kUnpacedTokens : static_cast<int32_t>(rate * kSeconds / kStreams);
    Write(orders, Order{tokens});
    Report report;
    CHECK(Read(reports, &report));
    if (report.broken != 0) {
      std::fprintf(stderr, "stream_bench: %d streams had gaps, errors or no end\n", report.broken);
      return 1;
    }
    if (rate != 20'000) Print(rate, report, CpuSeconds() - cpu_before);
  }
  Write(orders, Order{});
  return 0;
}

}  // namespace
}  // namespace quire

int main(int argc, char** argv) {
  std::vector<int> rates(std::begin(quire::kPacedRates), std::end(quire::kPacedRates));
  if (argc > 1) rates.clear();
  for (int i = 1; i < argc; ++i) rates.push_back(std::atoi(argv[i]));
  quire::PinToTwoCores();
  int orders[2];
  int reports[2];
  if (pipe(orders) != 0 || pipe(reports) != 0) return 1;
  // Before either process has touched gRPC, which does not survive a fork.
  const pid_t client = fork();
  if (client == 0) {
    close(orders[1]);
    _exit(quire::ClientMain(orders[0], reports[1]));
  }
  const int code = quire::ServerMain(orders[1], reports[0], rates);
  close(orders[1]);
  int status = 0;
  waitpid(client, &status, 0);
  return code;
}
