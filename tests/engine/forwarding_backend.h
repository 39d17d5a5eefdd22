// ForwardingBackend: forwards every call to a CPU backend, so that a test can override the few
// calls it observes.
#pragma once

#include <memory>
#include <string>
#include <utility>

#include "kernels/backend.h"

namespace quire::testing {

class ForwardingBackend : public Backend {
 public:
  std::string Describe() const override { return inner_->Describe(); }
  Buffer Allocate(size_t bytes) override { return inner_->Allocate(bytes); }
  Buffer AllocateHost(size_t bytes) override { return inner_->AllocateHost(bytes); }
  bool UseInPlace(void* host, size_t bytes) override { return inner_->UseInPlace(host, bytes); }
  Buffer AllocateShared(size_t bytes) override { return inner_->AllocateShared(bytes); }
  void CopyToDevice(void* device, const void* host, size_t bytes) override {
    inner_->CopyToDevice(device, host, bytes);
  }
  void CopyToHost(void* host, const void* device, size_t bytes) override {
    inner_->CopyToHost(host, device, bytes);
  }
  void CopyOnDevice(void* to, const void* from, size_t bytes) override {
    inner_->CopyOnDevice(to, from, bytes);
  }
  void Synchronize() override { inner_->Synchronize(); }
  void RunCaptured(int64_t key, const std::function<void()>& fn) override {
    inner_->RunCaptured(key, fn);
  }
  std::unique_ptr<BlockCopier> MakeBlockCopier() override { return inner_->MakeBlockCopier(); }
  StepProfiler& profiler() override { return inner_->profiler(); }
  uint64_t Mark() override { return inner_->Mark(); }
  void WaitFor(uint64_t mark) override { inner_->WaitFor(mark); }
  void BeginStep(const BeginStepParams& p) override { inner_->BeginStep(p); }
  void EndStep(const EndStepParams& p) override { inner_->EndStep(p); }
  void FillUniform(const FillUniformParams& p) override { inner_->FillUniform(p); }
  void PlanAttention(const PagedAttentionParams& p) override { inner_->PlanAttention(p); }
  void Embed(const EmbedParams& p) override { inner_->Embed(p); }
  void RmsNorm(const RmsNormParams& p) override { inner_->RmsNorm(p); }
  void MatMul(const MatMulParams& p) override { inner_->MatMul(p); }
  void RopeStoreKv(const RopeStoreKvParams& p) override { inner_->RopeStoreKv(p); }
  void PagedAttention(const PagedAttentionParams& p) override { inner_->PagedAttention(p); }
  void SiluMul(const SiluMulParams& p) override { inner_->SiluMul(p); }
  void Quantize(const QuantizeParams& p) override { inner_->Quantize(p); }
  void GatherRows(const GatherRowsParams& p) override { inner_->GatherRows(p); }
  void GatherColumns(const GatherColumnsParams& p) override { inner_->GatherColumns(p); }
  void LayerNorm(const LayerNormParams& p) override { inner_->LayerNorm(p); }
  void AddScaled(const AddScaledParams& p) override { inner_->AddScaled(p); }
  void Scale(const ScaleParams& p) override { inner_->Scale(p); }
  void Gelu(const GeluParams& p) override { inner_->Gelu(p); }
  void Sample(const SampleParams& p) override { inner_->Sample(p); }
  void Score(const ScoreParams& p) override { inner_->Score(p); }
  void Pool(const PoolParams& p) override { inner_->Pool(p); }
  void AllReduceSum(TensorView x) override { inner_->AllReduceSum(x); }
  void SumRmsNorm(const RmsNormParams& p) override { inner_->SumRmsNorm(p); }
  void ColumnsToRows(TensorView x, TensorView out) override { inner_->ColumnsToRows(x, out); }
  void ShareSamples(const ShareSamplesParams& p) override { inner_->ShareSamples(p); }
  RankOf group() const override { return inner_->group(); }

 private:
  const std::unique_ptr<Backend> inner_ = std::move(CreateCpuBackends(1, 1)[0]);
};

}  // namespace quire::testing
