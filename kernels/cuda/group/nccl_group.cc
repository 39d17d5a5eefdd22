// One communicator a rank.
#include "kernels/cuda/group/nccl_group.h"

#include <dlfcn.h>
#include <nccl.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <utility>

#include "kernels/cuda/group/group_kernels.h"

namespace quire::cuda {
namespace {

// The functions of NCCL that we call.
struct Library {
  decltype(&ncclGetVersion) GetVersion;
  decltype(&ncclGetUniqueId) GetUniqueId;
  decltype(&ncclCommInitRank) CommInitRank;
  decltype(&ncclCommAbort) CommAbort;
  decltype(&ncclGetErrorString) GetErrorString;
  decltype(&ncclGetLastError) GetLastError;
  decltype(&ncclAllReduce) AllReduce;
  decltype(&ncclAllGather) AllGather;
  decltype(&ncclSend) Send;
  decltype(&ncclRecv) Recv;
  decltype(&ncclGroupStart) GroupStart;
  decltype(&ncclGroupEnd) GroupEnd;
};

template <typename Function>
bool Find(void* handle, const char* name, Function* function) {
  *function = reinterpret_cast<Function>(dlsym(handle, name));
  return *function != nullptr;
}

// Null if the library or a function is missing.
const Library* LoadLibrary(std::string* why) {
  void* const handle = dlopen("libnccl.so.2", RTLD_NOW | RTLD_LOCAL);
  static Library nccl;
  if (handle != nullptr && Find(handle, "ncclGetVersion", &nccl.GetVersion) &&
      Find(handle, "ncclGetUniqueId", &nccl.GetUniqueId) &&
      Find(handle, "ncclCommInitRank", &nccl.CommInitRank) &&
      Find(handle, "ncclCommAbort", &nccl.CommAbort) &&
      Find(handle, "ncclGetErrorString", &nccl.GetErrorString) &&
      Find(handle, "ncclGetLastError", &nccl.GetLastError) &&
      Find(handle, "ncclAllReduce", &nccl.AllReduce) &&
      Find(handle, "ncclAllGather", &nccl.AllGather) && Find(handle, "ncclSend", &nccl.Send) &&
      Find(handle, "ncclRecv", &nccl.Recv) && Find(handle, "ncclGroupStart", &nccl.GroupStart) &&
      Find(handle, "ncclGroupEnd", &nccl.GroupEnd)) {
    return &nccl;
  }
  const char* const error = dlerror();
  *why = std::string("NCCL cannot be loaded: ") + (error == nullptr ? "?" : error);
  return nullptr;
}

ncclDataType_t TypeOf(DType dtype) {
  switch (dtype) {
    case DType::kBF16: return ncclBfloat16;
    case DType::kF16: return ncclFloat16;
    default: return ncclFloat32;
  }
}

}  // namespace

struct NcclGroup::State {
  const Library* nccl = nullptr;
  ncclComm_t communicator = nullptr;
  RankPlace place;
  Device device;
  SampleResult* gathered = nullptr;

  // A communicator that fails is lost, and this process with it.
  void Check(ncclResult_t result, const char* call) const {
    if (result == ncclSuccess) [[likely]]
      return;
    std::fprintf(stderr, "%s: %s: %s\n", call, nccl->GetErrorString(result),
                 nccl->GetLastError(communicator));
    std::fflush(stderr);
    std::abort();
  }
};

NcclGroup::NcclGroup(std::unique_ptr<State> state) : state_(std::move(state)) {}

// Not ncclCommDestroy: it waits for ranks that may be gone.
NcclGroup::~NcclGroup() { state_->nccl->CommAbort(state_->communicator); }

std::unique_ptr<NcclGroup> NcclGroup::Create(const RankPlace& place, const Device& device,
                                             SampleResult* gathered, std::string* why) {
  const Library* const nccl = LoadLibrary(why);
  ncclUniqueId id{};
  bool good = nccl != nullptr;
  if (good && place.rank == 0 && nccl->GetUniqueId(&id) != ncclSuccess) {
    *why = std::string("NCCL: ") + nccl->GetLastError(nullptr);
    good = false;
  }
  // A rank shares nothing if it cannot go on; then no rank does.
  const std::string mine = good ? std::string(id.internal, sizeof id.internal) : "";
  const std::vector<std::string> shared = place.exchange->Share(mine);
  for (size_t rank = 0; rank < shared.size(); ++rank) {
    if (shared[rank].size() == sizeof id.internal) continue;
    if (good) *why = "rank " + std::to_string(rank) + " has no NCCL";
    return nullptr;
  }
  std::memcpy(id.internal, shared.front().data(), sizeof id.internal);
  auto state = std::make_unique<State>();
  *state = {.nccl = nccl, .place = place, .device = device, .gathered = gathered};
  const ncclResult_t joined = nccl->CommInitRank(&state->communicator, place.ranks, id, place.rank);
  if (joined != ncclSuccess) {
    *why = std::string("NCCL cannot join the ranks: ") + nccl->GetErrorString(joined) + ": " +
           nccl->GetLastError(nullptr);
  }
  for (const std::string& each : place.exchange->Share(joined == ncclSuccess ? "joined" : "")) {
    if (!each.empty()) continue;
    if (joined == ncclSuccess) {
      nccl->CommAbort(state->communicator);
      *why = "NCCL cannot join another rank";
    }
    return nullptr;
  }
  return std::unique_ptr<NcclGroup>(new NcclGroup(std::move(state)));
}

std::string NcclGroup::version() const {
  int number = 0;
  state_->nccl->GetVersion(&number);
  return std::to_string(number / 10000) + "." + std::to_string(number / 100 % 100) + "." +
         std::to_string(number % 100);
}

void NcclGroup::AllReduceSum(const TensorView& x) {
  CHECK(x.IsDense());
  State& s = *state_;
  s.Check(s.nccl->AllReduce(x.data, x.data, static_cast<size_t>(x.size()), TypeOf(x.dtype), ncclSum,
                            s.communicator, s.device.stream),
          "ncclAllReduce");
}

// Row by row, since the columns of a rank lie apart in `out`.
void NcclGroup::ColumnsToRows(const TensorView& x, const TensorView& out) {
  CHECK(x.IsDense() && out.IsDense());
  State& s = *state_;
  const auto width = static_cast<size_t>(x.dim[1]);
  const ncclDataType_t type = TypeOf(x.dtype);
  const RowRange mine = RowsOf(s.place.rank, s.place.ranks, x.dim[0]);
  s.Check(s.nccl->GroupStart(), "ncclGroupStart");
  for (int32_t r = 0; r < s.place.ranks; ++r) {
    const RowRange theirs = RowsOf(r, s.place.ranks, x.dim[0]);
    for (int64_t i = 0; i < theirs.count; ++i) {
      s.Check(s.nccl->Send(x.Rows(theirs.begin + i, 1).data, width, type, r, s.communicator,
                           s.device.stream),
              "ncclSend");
    }
    for (int64_t i = 0; i < mine.count; ++i) {
      s.Check(s.nccl->Recv(out.Rows(i, 1).Columns(r * x.dim[1], x.dim[1]).data, width, type, r,
                           s.communicator, s.device.stream),
              "ncclRecv");
    }
  }
  s.Check(s.nccl->GroupEnd(), "ncclGroupEnd");
}

void NcclGroup::ShareSamples(const ShareSamplesParams& p) {
  State& s = *state_;
  const int64_t most = MostRows(p.num_rows, s.place.ranks);
  const RowRange mine = RowsOf(s.place.rank, s.place.ranks, p.num_rows);
  SampleResult* const own = s.gathered + s.place.rank * most;
  CUDA_CHECK(cudaMemcpyAsync(own, p.results + mine.begin,
                             static_cast<size_t>(mine.count) * sizeof(SampleResult),
                             cudaMemcpyDeviceToDevice, s.device.stream));
  s.Check(s.nccl->AllGather(own, s.gathered, static_cast<size_t>(most) * sizeof(SampleResult),
                            ncclInt8, s.communicator, s.device.stream),
          "ncclAllGather");
  SpreadSamples(p, s.gathered, s.device);
}

}  // namespace quire::cuda
