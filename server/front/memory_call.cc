// The scheduler's view comes on its thread; the session thread makes the answer of it.
#include "server/front/memory_call.h"

#include <algorithm>
#include <memory>
#include <utility>
#include <vector>

#include "engine/base/clock.h"
#include "quire/v1/control.pb.h"
#include "server/call/connection_table.h"
#include "server/call/serial_thread.h"
#include "server/call/status_codec.h"
#include "server/call/wire_check.h"
#include "server/metrics/live_figures.h"
#include "server/metrics/metrics.h"
#include "server/metrics/process/process_stats.h"
#include "server/session/session_resources.h"

namespace quire {
namespace {

constexpr struct {
  const char* name;
  double (*value)(const HistorySecond&);
} kSeries[] = {
    {"used_blocks", [](const HistorySecond& s) -> double { return s.used_blocks; }},
    {"cached_blocks", [](const HistorySecond& s) -> double { return s.cached_blocks; }},
    {"host_pages", [](const HistorySecond& s) -> double { return s.used_pages; }},
    {"stored_bytes_per_second", [](const HistorySecond& s) { return s.stored_bytes_per_second; }},
    {"loaded_bytes_per_second", [](const HistorySecond& s) { return s.loaded_bytes_per_second; }},
};

template <typename Owner, size_t kOwners>
void FillTier(const char* name, int64_t block_bytes, const std::array<int32_t, kOwners>& counts,
              v1::Memory::Tier* tier) {
  uint64_t total = 0;
  tier->set_name(name);
  tier->set_block_bytes(static_cast<uint64_t>(block_bytes));
  for (size_t i = 0; i < kOwners; ++i) {
    const auto blocks = static_cast<uint64_t>(counts[i]);
    v1::Memory::Owner* owner = tier->add_owners();
    owner->set_name(Name(static_cast<Owner>(i)));
    owner->set_blocks(blocks);
    owner->set_bytes(blocks * static_cast<uint64_t>(block_bytes));
    total += blocks;
  }
  tier->set_total_blocks(total);
}

void FillSeries(const std::vector<HistorySecond>& seconds, v1::Memory* memory) {
  memory->set_seconds(static_cast<uint32_t>(seconds.size()));
  if (seconds.empty()) return;
  for (const auto& one : kSeries) {
    double lowest = one.value(seconds.front()), highest = lowest, sum = 0;
    for (const HistorySecond& second : seconds) {
      lowest = std::min(lowest, one.value(second));
      highest = std::max(highest, one.value(second));
      sum += one.value(second);
    }
    v1::Memory::Series* series = memory->add_series();
    series->set_name(one.name);
    series->set_min(lowest);
    series->set_mean(sum / static_cast<double>(seconds.size()));
    series->set_max(highest);
    series->set_last(one.value(seconds.back()));
  }
}

v1::Memory MemoryOf(const ControlResources& resources, const SchedulerView& view) {
  v1::Memory memory;
  const MemoryPlan& plan = resources.model.setup.memory;
  FillMemoryPlan(plan, memory.mutable_plan());
  FillTier<BlockOwner>("device", plan.block_bytes(), view.kv.blocks, memory.add_tiers());
  if (!view.kv.page_cells.empty()) {
    FillTier<PageOwner>("host", plan.page_bytes(), view.kv.pages, memory.add_tiers());
  }
  memory.set_reserved_blocks(static_cast<uint64_t>(view.kv.reserved_blocks));
  memory.set_host_pages_ready(
      static_cast<uint64_t>(resources.engine.Stats().cache.host_pages_ready));
  memory.set_resident_bytes(static_cast<uint64_t>(ReadProcessStats().resident_bytes));
  FillSeries(resources.calls.metrics.live().history.All(), &memory);
  return memory;
}

class MemoryReactor final : public grpc::ServerUnaryReactor {
 public:
  MemoryReactor(ConnectionTable* connections, const std::string& peer) : call_(connections, peer) {}
  void OnDone() override { delete this; }

 private:
  const OpenCall call_;
};

// Ends its call exactly once: with an answer, or as refused when the engine ended first and dropped
// the question with it.
class PendingMemory {
 public:
  PendingMemory(const ControlResources& resources, grpc::ServerUnaryReactor* reactor,
                grpc::ByteBuffer* out)
      : resources_(resources), reactor_(reactor), out_(out) {}
  ~PendingMemory() {
    if (reactor_ == nullptr) return;
    End(Refusal(absl::StatusCode::kUnavailable, "DRAINING",
                "the server is going away; retry elsewhere", 1));
  }
  PendingMemory(const PendingMemory&) = delete;
  PendingMemory& operator=(const PendingMemory&) = delete;

  void Answer(const SchedulerView& view) {
    const std::string bytes = MemoryOf(resources_, view).SerializeAsString();
    *out_ = ToByteBuffer(bytes.data(), bytes.size());
    End(absl::OkStatus());
  }
  void End(const absl::Status& status) {
    resources_.calls.metrics.RpcFinished("GetMemory", static_cast<int>(status.code()),
                                         static_cast<double>(SteadyNowNs() - started_ns_) * 1e-9);
    std::exchange(reactor_, nullptr)->Finish(ToGrpcStatus(status));
  }

 private:
  const ControlResources resources_;
  const int64_t started_ns_ = SteadyNowNs();
  grpc::ServerUnaryReactor* reactor_;
  grpc::ByteBuffer* const out_;
};

}  // namespace

RawService::Unary MemoryCall(const ControlResources& resources) {
  return [resources](const IncomingCall& call, const grpc::ByteBuffer* in,
                     grpc::ByteBuffer* out) -> grpc::ServerUnaryReactor* {
    auto* reactor = new MemoryReactor(&resources.calls.connections, call.context->peer());
    const auto pending = std::make_shared<PendingMemory>(resources, reactor, out);
    v1::GetMemoryRequest request;
    if (const absl::Status status = ParseMessage(*in, &request); !status.ok()) {
      pending->End(status);
      return reactor;
    }
    resources.calls.metrics.live().view.Await(
        resources.engine, SteadyNowNs(),
        [pending, &thread = resources.sessions.thread](LatestView::View view) {
          thread.Post([pending, view = std::move(view)] { pending->Answer(*view); });
        });
    return reactor;
  };
}

}  // namespace quire
