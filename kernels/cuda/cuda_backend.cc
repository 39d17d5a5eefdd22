// The CUDA backend: memory, order and capture. Each operation has its own file.
#include "kernels/cuda/cuda_backend.h"

#include <atomic>
#include <cstring>
#include <utility>

#include "kernels/ceil_div.h"
#include "kernels/check.h"
#include "kernels/cuda/attention/paged_attention.h"
#include "kernels/cuda/block_copier.h"
#include "kernels/cuda/device/cuda_kernels.h"
#include "kernels/cuda/event_profiler.h"
#include "kernels/cuda/graph_set.h"
#include "kernels/cuda/group/communicator.h"
#include "kernels/cuda/marked_stream.h"
#include "kernels/cuda/matmul/matmul.h"

namespace quire {
namespace {

constexpr int64_t kAlignment = 256;
int64_t Aligned(int64_t bytes) { return RoundUp(bytes, kAlignment); }

// Rows of logits of a step.
int32_t MostDraws(const CudaOptions& options) { return options.max_rows + options.step_guesses; }

cuda::AttentionLimits LimitsOf(const CudaOptions& options) {
  return {.max_rows = options.max_rows,
          .max_tokens = options.max_tokens,
          .max_context = options.max_context,
          .num_heads = options.num_heads,
          .num_kv_heads = options.num_kv_heads,
          .head_dim = options.head_dim,
          .capped = options.capped};
}

// The layout of the backend's own memory: byte offsets of its parts, and its size.
struct Space {
  int64_t attention = 0;
  int64_t workspace = 0;
  int64_t bytes = 0;
};

Space Layout(const CudaOptions& options, int num_sms) {
  Space space;
  space.workspace = Aligned(cuda::PagedAttention::SpaceBytes(LimitsOf(options), num_sms));
  space.bytes = space.workspace + Aligned(cuda::MatMul::WorkspaceBytes());
  return space;
}

int SmsOf(int ordinal) {
  int count = 0;
  CUDA_CHECK(cudaDeviceGetAttribute(&count, cudaDevAttrMultiProcessorCount, ordinal));
  return count;
}

// The operations that need nothing but the device.
class DeviceOperations : public CudaBackend {
 public:
  void Embed(const EmbedParams& p) override {
    profiler().Enter(StepPart::kElementwise);
    cuda::Embed(p, device());
  }
  void RmsNorm(const RmsNormParams& p) override {
    profiler().Enter(StepPart::kNorms);
    cuda::RmsNorm(p, device());
  }
  void SiluMul(const SiluMulParams& p) override {
    profiler().Enter(StepPart::kElementwise);
    cuda::SiluMul(p, device());
  }
  void Quantize(const QuantizeParams& p) override {
    profiler().Enter(StepPart::kElementwise);
    cuda::Quantize(p, device());
  }
  void GatherRows(const GatherRowsParams& p) override {
    profiler().Enter(StepPart::kElementwise);
    cuda::GatherRows(p, device());
  }
  void GatherColumns(const GatherColumnsParams& p) override {
    profiler().Enter(StepPart::kElementwise);
    cuda::GatherColumns(p, device());
  }
  void LayerNorm(const LayerNormParams& p) override {
    profiler().Enter(StepPart::kNorms);
    cuda::LayerNorm(p, device());
  }
  void AddScaled(const AddScaledParams& p) override {
    profiler().Enter(StepPart::kElementwise);
    cuda::AddScaled(p, device());
  }
  void Scale(const ScaleParams& p) override {
    profiler().Enter(StepPart::kElementwise);
    cuda::Scale(p, device());
  }
  void Gelu(const GeluParams& p) override {
    profiler().Enter(StepPart::kElementwise);
    cuda::Gelu(p, device());
  }
  void Sample(const SampleParams& p) override {
    profiler().Enter(StepPart::kSampling);
    cuda::Sample(p, device());
  }
  void Score(const ScoreParams& p) override {
    profiler().Enter(StepPart::kSampling);
    cuda::Score(p, device());
  }
  void Pool(const PoolParams& p) override {
    profiler().Enter(StepPart::kElementwise);
    cuda::Pool(p, device());
  }
  void EndStep(const EndStepParams& p) override {
    profiler().Enter(StepPart::kElementwise);
    cuda::EndStep(p, device());
  }
  void FillUniform(const FillUniformParams& p) override { cuda::FillUniform(p, device()); }

 protected:
  virtual const cuda::Device& device() const = 0;
};

class Implementation final : public DeviceOperations {
 public:
  Implementation(const CudaOptions& options, std::string name, Buffer space)
      : options_(options),
        name_(std::move(name)),
        space_(std::move(space)),
        device_{.ordinal = options.ordinal,
                .num_sms = SmsOf(options.ordinal),
                .stream = stream_.get(),
                .dependent_launch = options.dependent_launch},
        layout_(Layout(options, device_.num_sms)),
        profiler_(stream_),
        attention_(LimitsOf(options), device_, At(layout_.attention)),
        matmul_(device_, At(layout_.workspace), options.algorithm_cache),
        graphs_(device_.stream),
        allocated_(layout_.bytes +
                   (options.place.ranks == 1
                        ? 0
                        : cuda::Communicator::Bytes(options.place.ranks, MostDraws(options)))) {}

  ~Implementation() override {
    Synchronize();
    for (void* host : used_in_place_) cudaHostUnregister(host);
  }

  // In a group, before any other call.
  bool Join(std::string* why) {
    communicator_ = cuda::Communicator::Create({.place = options_.place,
                                                .max_rows = MostDraws(options_),
                                                .hidden = options_.hidden,
                                                .cache_file = options_.sum_cache,
                                                .forced = cuda::SumMethod::kMeasured},
                                               device_, why);
    return communicator_ != nullptr;
  }

  std::string Describe() const override {
    const std::string group =
        communicator_ == nullptr
            ? ""
            : ", " + std::to_string(ranks()) + " ranks joined by " + communicator_->Describe();
    return "cuda (" + name_ + group + ")";
  }

  Buffer Allocate(size_t bytes) override {
    CHECK(!sealed_);
    const size_t size =
        std::max<size_t>(static_cast<size_t>(Aligned(static_cast<int64_t>(bytes))), kAlignment);
    void* data = nullptr;
    if (cudaMalloc(&data, size) != cudaSuccess) {
      cudaGetLastError();  // clears the error; the caller reports the shortage
      return Buffer();
    }
    CUDA_CHECK(cudaMemsetAsync(data, 0, size, device_.stream));
    allocated_ += static_cast<int64_t>(size);
    return Buffer(data, size, [](void* p, size_t) { cudaFree(p); });
  }

  Buffer AllocateHost(size_t bytes) override {
    CHECK(!sealed_);
    void* data = nullptr;
    const size_t size = std::max<size_t>(bytes, 1);
    if (cudaHostAlloc(&data, size, cudaHostAllocMapped | cudaHostAllocPortable) != cudaSuccess) {
      cudaGetLastError();
      return Buffer();
    }
    std::memset(data, 0, size);
    return Buffer(data, size, [](void* p, size_t) { cudaFreeHost(p); });
  }

  Buffer AllocateShared(size_t bytes) override {
    CHECK(!sealed_);
    if (communicator_ == nullptr) return Allocate(bytes);
    Buffer shared =
        communicator_->AllocateShared(static_cast<size_t>(Aligned(static_cast<int64_t>(bytes))));
    allocated_ += static_cast<int64_t>(shared.bytes());
    return shared;
  }

  bool UseInPlace(void* host, size_t bytes) override {
    const unsigned flags = cudaHostRegisterMapped | cudaHostRegisterPortable;
    void* of_device = nullptr;
    const bool registered = cudaHostRegister(host, bytes, flags) == cudaSuccess;
    if (registered && cudaHostGetDevicePointer(&of_device, host, 0) == cudaSuccess &&
        of_device == host) {
      used_in_place_.push_back(host);
      return true;
    }
    if (registered) cudaHostUnregister(host);
    cudaGetLastError();  // clears the error, or the next call would report it
    return false;
  }

  void CopyToDevice(void* to, const void* from, size_t bytes) override {
    CUDA_CHECK(cudaMemcpyAsync(to, from, bytes, cudaMemcpyHostToDevice, device_.stream));
  }
  void CopyToHost(void* to, const void* from, size_t bytes) override {
    CUDA_CHECK(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToHost, device_.stream));
  }
  void CopyOnDevice(void* to, const void* from, size_t bytes) override {
    profiler_.Enter(StepPart::kCopies);
    CUDA_CHECK(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToDevice, device_.stream));
  }
  void Synchronize() override { CUDA_CHECK(cudaStreamSynchronize(device_.stream)); }
  uint64_t Mark() override { return stream_.Mark(); }
  void WaitFor(uint64_t mark) override { stream_.WaitFor(mark); }

  void RunCaptured(int64_t key, const std::function<void()>& fn) override {
    if (key == 0 || !options_.capture) return fn();
    graphs_.Run(key, fn);
  }
  std::unique_ptr<BlockCopier> MakeBlockCopier() override {
    return std::make_unique<cuda::StreamBlockCopier>(options_.ordinal);
  }
  StepProfiler& profiler() override { return profiler_; }

  void BeginStep(const BeginStepParams& p) override {
    profiler_.Enter(StepPart::kElementwise);
    settled_ = false;
    cuda::BeginStep(p, device_);
  }
  void PlanAttention(const PagedAttentionParams& p) override {
    profiler_.Enter(StepPart::kAttention);
    attention_.Plan(p);
  }
  void MatMul(const MatMulParams& p) override {
    profiler_.Enter(StepPart::kProducts);
    matmul_.Run(p);
  }
  void RopeStoreKv(const RopeStoreKvParams& p) override {
    profiler_.Enter(StepPart::kElementwise);
    cuda::RopeStoreKv(p, device_, settled_);
  }
  void PagedAttention(const PagedAttentionParams& p) override {
    profiler_.Enter(StepPart::kAttention);
    attention_.Run(p);
    settled_ = true;
  }

  RankOf group() const override { return {options_.place.rank, options_.place.ranks}; }
  void AllReduceSum(TensorView x) override {
    if (Exchanges()) communicator_->AllReduceSum(x);
  }
  void SumRmsNorm(const RmsNormParams& p) override {
    if (!Exchanges()) return RmsNorm(p);
    communicator_->SumRmsNorm(p);
  }
  void ColumnsToRows(TensorView x, TensorView out) override {
    if (Exchanges()) return communicator_->ColumnsToRows(x, out);
    CHECK(x.dim == out.dim);
    CopyOnDevice(out.data, x.data, static_cast<size_t>(x.bytes()));
  }
  void ShareSamples(const ShareSamplesParams& p) override {
    if (Exchanges()) communicator_->ShareSamples(p);
  }

  int64_t allocated_bytes() const override { return allocated_; }
  void Seal() override {
    matmul_.SaveChoices();
    sealed_ = true;
  }
  std::vector<GraphStats> graphs() const override { return graphs_.stats(); }
  void* stream() const override { return device_.stream; }

 private:
  const cuda::Device& device() const override { return device_; }
  // False in a group of one, which has nothing to exchange.
  bool Exchanges() {
    if (communicator_ != nullptr) profiler_.Enter(StepPart::kCollectives);
    return communicator_ != nullptr;
  }
  void* At(int64_t offset) const { return static_cast<char*>(space_.data()) + offset; }

  const CudaOptions options_;
  const std::string name_;
  // In this order, so that graphs and operations die before the memory and the stream they use.
  const Buffer space_;
  cuda::MarkedStream stream_;
  const cuda::Device device_;
  const Space layout_;
  cuda::EventProfiler profiler_;
  cuda::PagedAttention attention_;
  bool settled_ = false;  // the step has enqueued an attention (rule 2 of launch.h)
  cuda::MatMul matmul_;
  std::unique_ptr<cuda::Communicator> communicator_;  // null in a group of one
  cuda::GraphSet graphs_;
  int64_t allocated_;
  bool sealed_ = false;
  std::vector<void*> used_in_place_;  // other owners' memory
};

std::string UuidOf(const cudaDeviceProp& properties) {
  constexpr char kHex[] = "0123456789abcdef";
  std::string text = "GPU-";
  for (int i = 0; i < 16; ++i) {
    if (i == 4 || i == 6 || i == 8 || i == 10) text += '-';
    const auto byte = static_cast<unsigned char>(properties.uuid.bytes[i]);
    text += {kHex[byte / 16], kHex[byte % 16]};
  }
  return text;
}

std::string WhyNoDevice(int ordinal, int count, cudaError_t error) {
  const std::string device =
      "CUDA device " + std::to_string(ordinal) + " of " + std::to_string(count);
  int driver = -1;
  // Without a driver the runtime calls it too old.
  if (cudaDriverGetVersion(&driver) == cudaSuccess && driver == 0) {
    return device +
           " cannot be used: this process finds no NVIDIA driver (libcuda.so.1); install one, or "
           "give the container the host's with --gpus all and NVIDIA's container toolkit";
  }
  return device + " cannot be used: " + cudaGetErrorString(error);
}

}  // namespace

std::unique_ptr<CudaDeviceInfo> DescribeCudaDevice(int ordinal, std::string* why) {
  int count = 0;
  cudaError_t error = cudaGetDeviceCount(&count);
  if (error == cudaSuccess && ordinal >= count) error = cudaErrorNoDevice;
  cudaDeviceProp properties;
  if (error == cudaSuccess) error = cudaGetDeviceProperties(&properties, ordinal);
  if (error == cudaSuccess) error = cudaSetDevice(ordinal);
  size_t free = 0, total = 0;
  if (error == cudaSuccess) error = cudaMemGetInfo(&free, &total);
  int driver = 0;
  if (error == cudaSuccess) error = cudaDriverGetVersion(&driver);
  if (error != cudaSuccess) {
    cudaGetLastError();
    *why = WhyNoDevice(ordinal, count, error);
    return nullptr;
  }
  auto info = std::make_unique<CudaDeviceInfo>();
  info->name = properties.name;
  info->uuid = UuidOf(properties);
  info->compute_capability = properties.major * 10 + properties.minor;
  info->num_sms = properties.multiProcessorCount;
  info->total_bytes = static_cast<int64_t>(total);
  info->free_bytes = static_cast<int64_t>(free);
  info->driver = std::to_string(driver / 1000) + "." + std::to_string(driver % 1000 / 10);
  if (info->compute_capability != 90) {
    *why = info->name + " has compute capability " + std::to_string(properties.major) + "." +
           std::to_string(properties.minor) + "; this build is for 9.0 (H100, H200)";
    return nullptr;
  }
  return info;
}

int64_t CudaBackendBytes(const CudaOptions& options) {
  const int64_t own = Layout(options, SmsOf(options.ordinal)).bytes;
  const int32_t ranks = options.place.ranks;
  if (ranks == 1) return own;
  return own + cuda::Communicator::Bytes(ranks, MostDraws(options)) +
         cuda::Communicator::NcclBytes(options.place);
}

std::unique_ptr<CudaBackend> CudaBackend::Create(const CudaOptions& options, std::string* why) {
  const std::unique_ptr<CudaDeviceInfo> info = DescribeCudaDevice(options.ordinal, why);
  if (info == nullptr) return nullptr;
  const int64_t bytes = Layout(options, info->num_sms).bytes;
  void* space = nullptr;
  if (cudaMalloc(&space, static_cast<size_t>(bytes)) != cudaSuccess) {
    cudaGetLastError();
    *why = info->name + " has too little free memory for " + std::to_string(bytes) +
           " bytes of workspace; lower --max-num-batched-tokens or --max-num-seqs";
    return nullptr;
  }
  Buffer owned(space, static_cast<size_t>(bytes), [](void* p, size_t) { cudaFree(p); });
  CUDA_CHECK(cudaMemset(space, 0, static_cast<size_t>(bytes)));
  auto backend = std::make_unique<Implementation>(options, info->name, std::move(owned));
  if (options.place.ranks > 1 && !backend->Join(why)) return nullptr;
  return backend;
}

}  // namespace quire
