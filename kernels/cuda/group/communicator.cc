// Joining the ranks, choosing how each size is summed, and the calls.
#include "kernels/cuda/group/communicator.h"

#include <algorithm>
#include <charconv>
#include <cstdio>
#include <utility>
#include <vector>

#include "kernels/cuda/device/cuda_kernels.h"
#include "kernels/cuda/group/group_kernels.h"
#include "kernels/cuda/group/nccl_group.h"
#include "kernels/cuda/group/peer_memory.h"

namespace quire::cuda {
namespace {

constexpr int64_t kLine = 256;

struct Layout {
  InboxLayout inbox;
  int64_t state = 0;     // in this rank's own memory from here on
  int64_t gathered = 0;  // results, for NCCL
  int64_t own_bytes = 0;
};

Layout LayoutOf(int32_t ranks, int32_t max_rows) {
  Layout layout{.inbox = LayOutInbox(ranks, max_rows)};
  layout.gathered = kLine;
  layout.own_bytes =
      layout.gathered +
      RoundUp<int64_t>((int64_t{max_rows} + ranks) * int64_t{sizeof(SampleResult)}, kLine);
  return layout;
}

// The host's word for `collectives` as the device writes it; null if the system refuses.
uint64_t* DeviceView(std::atomic<uint64_t>* word) {
  if (word == nullptr) return nullptr;
  constexpr uintptr_t kPage = 4096;
  const auto address = reinterpret_cast<uintptr_t>(word);
  auto* const page = reinterpret_cast<void*>(address / kPage * kPage);
  void* device = nullptr;
  if (cudaHostRegister(page, kPage, cudaHostRegisterMapped) != cudaSuccess ||
      cudaHostGetDevicePointer(&device, page, 0) != cudaSuccess) {
    cudaGetLastError();
    return nullptr;
  }
  return reinterpret_cast<uint64_t*>(static_cast<char*>(device) + address % kPage);
}

SumPath PathOf(SumMethod method) {
  return method == SumMethod::kTwoShot ? SumPath::kTwoShot : SumPath::kOneShot;
}

// Device memory that is freed with this.
struct Scratch {
  explicit Scratch(size_t bytes) {
    if (cudaMalloc(&data, bytes) != cudaSuccess) {
      cudaGetLastError();
      data = nullptr;
    }
  }
  ~Scratch() { cudaFree(data); }
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;
  void* data = nullptr;
};

}  // namespace

struct Communicator::State {
  CommunicatorOptions options;
  Device device;
  Buffer own;
  SampleResult* gathered = nullptr;
  std::unique_ptr<PeerMemory> peers;  // null: the ranks do not reach each other's memory
  std::unique_ptr<NcclGroup> nccl;    // null: peers exchange everything
  GroupView view;
  SumChoice choice{SumMethod::kNccl};
  std::vector<std::unique_ptr<PeerMemory>> shared;  // of AllocateShared

  bool JoinPeers(const Layout& layout, std::string* why);
  bool JoinNccl(std::string* why);
  void Choose();
  SumChoice Measure();
  float Time(SumMethod method, int64_t bytes, const Scratch& scratch);
  void Sum(const RmsNormParams& p, SumMethod method);
};

// True on all ranks or on none.
bool Communicator::State::JoinPeers(const Layout& layout, std::string* why) {
  const RankPlace& place = options.place;
  if (!place.one_host || !CanSum(place.ranks)) {
    *why = std::to_string(place.ranks) + " ranks" + (place.one_host ? "" : " of several hosts") +
           " do not exchange through each other's memory";
    return false;
  }
  peers = PeerMemory::Create(place, static_cast<size_t>(layout.inbox.bytes), why);
  if (peers == nullptr) return false;
  view = {.layout = layout.inbox,
          .state = static_cast<GroupState*>(own.data()),
          .calls_begun = DeviceView(place.collectives),
          .rank = place.rank,
          .ranks = place.ranks};
  for (int32_t rank = 0; rank < place.ranks; ++rank) view.inbox[rank] = peers->of(rank);
  ResetInbox(peers->of(place.rank), view.state, layout.inbox, place.ranks, device.stream);
  CUDA_CHECK(cudaStreamSynchronize(device.stream));
  place.exchange->Share("");  // every inbox is empty
  return true;
}

bool Communicator::State::JoinNccl(std::string* why) {
  nccl = NcclGroup::Create(options.place, device, gathered, why);
  return nccl != nullptr;
}

// Every rank takes the choice of rank 0's file, or measures with the others. Between two ranks the
// one-shot sum moves the fewest bytes in the fewest hops, and was the fastest at every size.
void Communicator::State::Choose() {
  const RankPlace& place = options.place;
  choice = SumChoice(SumMethod::kOneShot);
  if (options.forced != SumMethod::kMeasured) choice = SumChoice(options.forced);
  std::string why;  // without NCCL our kernels take every size
  if (options.forced == SumMethod::kNccl) JoinNccl(&why);
  if (options.forced != SumMethod::kMeasured || place.ranks == 2) return;
  cudaDeviceProp properties;
  CUDA_CHECK(cudaGetDeviceProperties(&properties, device.ordinal));
  const std::string name = std::string(properties.name) + ", " + std::to_string(place.ranks) +
                           " ranks, width " + std::to_string(options.hidden);
  const bool keeps = place.rank == 0 && !options.cache_file.empty();
  std::string text = keeps ? SumChoice::Load(options.cache_file, name) : "";
  text = place.exchange->Share(text).front();
  const bool known = SumChoice::Parse(text, &choice);
  if (!known || choice.Has(SumMethod::kNccl)) JoinNccl(&why);
  if (!known) choice = Measure();
  const bool complete = nccl != nullptr;  // without NCCL the next start measures again
  if (!choice.Has(SumMethod::kNccl)) nccl.reset();
  if (keeps && complete && !known && !SumChoice::Save(options.cache_file, name, choice.Text())) {
    std::fprintf(stderr, "%s cannot be written; the next start measures again\n",
                 options.cache_file.c_str());
  }
}

// Times each method at each size on all ranks at once. A method is as slow as its slowest rank.
SumChoice Communicator::State::Measure() {
  std::vector<SumMethod> methods = {SumMethod::kOneShot};
  if (options.place.ranks > 2) methods.push_back(SumMethod::kTwoShot);
  if (nccl != nullptr) methods.push_back(SumMethod::kNccl);
  SumChoice best(SumMethod::kOneShot);
  for (size_t i = 0; i < SumChoice::kSizes.size(); ++i) {
    const Scratch scratch(static_cast<size_t>(2 * SumChoice::kSizes[i]));
    std::string mine;
    // Ranks that wait for one without the memory would wait for ever: then none measures the size.
    const auto has = options.place.exchange->Share(scratch.data == nullptr ? "" : "yes");
    const bool all =
        std::ranges::all_of(has, [](const std::string& each) { return !each.empty(); });
    for (const SumMethod method : methods) {
      mine += std::to_string(all ? Time(method, SumChoice::kSizes[i], scratch) : 0.0f) + ' ';
    }
    std::vector<float> slowest(methods.size(), 0);
    for (const std::string& text : options.place.exchange->Share(mine)) {
      const char* at = text.data();
      for (float& time : slowest) {
        float of_rank = 0;
        at = std::from_chars(at, text.data() + text.size(), of_rank).ptr + 1;
        time = std::max(time, of_rank);
      }
    }
    best.Set(i, methods[std::ranges::min_element(slowest) - slowest.begin()]);
  }
  return best;
}

// Microseconds of one sum with its norm.
float Communicator::State::Time(SumMethod method, int64_t bytes, const Scratch& scratch) {
  constexpr int kCalls = 8;
  const int64_t rows = std::max<int64_t>(1, bytes / (2 * int64_t{options.hidden}));
  const TensorView x(scratch.data, DType::kBF16, {rows, options.hidden});
  const TensorView residual(static_cast<char*>(scratch.data) + bytes, DType::kBF16,
                            {rows, options.hidden});
  CUDA_CHECK(cudaMemsetAsync(scratch.data, 0, static_cast<size_t>(2 * bytes), device.stream));
  // Zeros for weights too: the residual's first row.
  const TensorView weight(residual.data, DType::kBF16, {options.hidden});
  const RmsNormParams p{.x = x, .residual = residual, .weight = weight, .eps = 1e-5f, .out = x};
  cudaEvent_t begin, end;
  CUDA_CHECK(cudaEventCreate(&begin));
  CUDA_CHECK(cudaEventCreate(&end));
  for (int i = 0; i < 2; ++i) Sum(p, method);
  CUDA_CHECK(cudaEventRecord(begin, device.stream));
  for (int i = 0; i < kCalls; ++i) Sum(p, method);
  CUDA_CHECK(cudaEventRecord(end, device.stream));
  CUDA_CHECK(cudaEventSynchronize(end));
  float ms = 0;
  CUDA_CHECK(cudaEventElapsedTime(&ms, begin, end));
  CUDA_CHECK(cudaEventDestroy(begin));
  CUDA_CHECK(cudaEventDestroy(end));
  return ms * 1e3f / kCalls;
}

void Communicator::State::Sum(const RmsNormParams& p, SumMethod method) {
  if (method == SumMethod::kNccl && nccl != nullptr) {
    nccl->AllReduceSum(p.x);
    return RmsNorm(p, device);
  }
  cuda::SumRmsNorm(p, PathOf(method), view, device);
}

Communicator::Communicator(std::unique_ptr<State> state) : state_(std::move(state)) {}
Communicator::~Communicator() = default;

int64_t Communicator::Bytes(int32_t ranks, int32_t max_rows) {
  const Layout layout = LayoutOf(ranks, max_rows);
  return layout.inbox.bytes + layout.own_bytes;
}

int64_t Communicator::NcclBytes(const RankPlace& place) {
  return place.one_host && place.ranks == 2 ? 0 : int64_t{1} << 30;
}

std::unique_ptr<Communicator> Communicator::Create(const CommunicatorOptions& options,
                                                   const Device& device, std::string* why) {
  const Layout layout = LayoutOf(options.place.ranks, options.max_rows);
  void* own = nullptr;
  if (cudaMalloc(&own, static_cast<size_t>(layout.own_bytes)) != cudaSuccess) own = nullptr;
  // All ranks stop where one has no memory.
  for (const std::string& each : options.place.exchange->Share(own == nullptr ? "" : "yes")) {
    if (!each.empty()) continue;
    cudaGetLastError();
    if (own != nullptr) cudaFree(own);
    *why = "a rank has no memory for the exchange between ranks";
    return nullptr;
  }
  auto state = std::make_unique<State>();
  state->options = options;
  state->device = device;
  state->own =
      Buffer(own, static_cast<size_t>(layout.own_bytes), [](void* p, size_t) { cudaFree(p); });
  state->gathered = reinterpret_cast<SampleResult*>(static_cast<char*>(own) + layout.gathered);
  std::string why_no_peers, why_no_nccl;
  if (state->JoinPeers(layout, &why_no_peers)) {
    state->Choose();
  } else if (!state->JoinNccl(&why_no_nccl)) {
    *why = why_no_peers + ", and " + why_no_nccl;
    return nullptr;
  }
  return std::unique_ptr<Communicator>(new Communicator(std::move(state)));
}

std::string Communicator::Describe() const {
  const std::string nccl = state_->nccl ? "NCCL " + state_->nccl->version() : "";
  if (state_->peers == nullptr) return nccl;
  return "peer memory" + (nccl.empty() ? "" : " and " + nccl) + " (sums " + state_->choice.Text() +
         ")";
}

Buffer Communicator::AllocateShared(size_t bytes) {
  if (state_->peers == nullptr) {
    void* data = nullptr;
    if (cudaMalloc(&data, bytes) != cudaSuccess) {
      cudaGetLastError();
      return Buffer();
    }
    CUDA_CHECK(cudaMemset(data, 0, bytes));
    return Buffer(data, bytes, [](void* p, size_t) { cudaFree(p); });
  }
  std::string why;
  std::unique_ptr<PeerMemory> memory = PeerMemory::Create(state_->options.place, bytes, &why);
  if (memory == nullptr) return Buffer();
  // This owns the memory: the other ranks write to it for as long as they have it.
  Buffer view(memory->of(state_->view.rank), bytes, [](void*, size_t) {});
  state_->shared.push_back(std::move(memory));
  return view;
}

void Communicator::AllReduceSum(const TensorView& x) {
  const SumMethod method = state_->choice.For(x.bytes());
  if (method == SumMethod::kNccl && state_->nccl != nullptr) return state_->nccl->AllReduceSum(x);
  cuda::AllReduceSum(x, PathOf(method), state_->view, state_->device);
}

void Communicator::SumRmsNorm(const RmsNormParams& p) {
  state_->Sum(p, state_->choice.For(p.x.bytes()));
}

void Communicator::ColumnsToRows(const TensorView& x, const TensorView& out) {
  if (state_->peers == nullptr) return state_->nccl->ColumnsToRows(x, out);
  CHECK_EQ(out.dim[1], x.dim[1] * state_->view.ranks);
  for (const auto& memory : state_->shared) {
    if (memory->of(state_->view.rank) != out.ptr<std::byte>()) continue;
    float* of_rank[kMaxPeers] = {};
    for (int r = 0; r < state_->view.ranks; ++r) {
      of_rank[r] = reinterpret_cast<float*>(memory->of(r));
    }
    return cuda::ColumnsToRows(x, of_rank, state_->view, state_->device);
  }
  CHECK(false);  // not of AllocateShared
}

void Communicator::ShareSamples(const ShareSamplesParams& p) {
  if (state_->peers == nullptr) return state_->nccl->ShareSamples(p);
  cuda::ShareSamples(p, state_->view, state_->device);
}

}  // namespace quire::cuda
