// DeviceArray: test data in device memory, filled with NaN bytes and with canaries on both sides,
// so that a missing write and a write out of bounds both fail the test.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>
#include <cstring>
#include <vector>

#include "gtest/gtest.h"
#include "kernels/check.h"
#include "kernels/cuda/device/check.h"
#include "kernels/dtype.h"
#include "kernels/tensor.h"

namespace quire::gpu {

template <typename T>
class DeviceArray {
 public:
  // `count` elements of 0xFF bytes: NaN in every floating type, -1 in every integer.
  explicit DeviceArray(int64_t count) : count_(count) {
    CUDA_CHECK(cudaMalloc(&base_, Bytes() + 2 * kCanary));
    CUDA_CHECK(cudaMemset(base_, 0xA5, Bytes() + 2 * kCanary));
    Poison();
  }
  explicit DeviceArray(const std::vector<T>& values)
      : DeviceArray(static_cast<int64_t>(values.size())) {
    Set(values);
  }
  DeviceArray(DeviceArray&& other) noexcept { *this = std::move(other); }
  DeviceArray& operator=(DeviceArray&& other) noexcept {
    std::swap(base_, other.base_);
    std::swap(count_, other.count_);
    return *this;
  }
  ~DeviceArray() {
    if (base_ != nullptr) cudaFree(base_);
  }

  T* data() const { return reinterpret_cast<T*>(base_ + kCanary); }
  int64_t size() const { return count_; }
  void Poison() { CUDA_CHECK(cudaMemset(data(), 0xFF, Bytes())); }
  void Set(const std::vector<T>& values) {
    CHECK_EQ(static_cast<int64_t>(values.size()), count_);
    CUDA_CHECK(cudaMemcpy(data(), values.data(), Bytes(), cudaMemcpyHostToDevice));
  }
  // The contents. Fails the test if a canary was overwritten.
  std::vector<T> Get() const {
    std::vector<char> all(Bytes() + 2 * kCanary);
    CUDA_CHECK(cudaDeviceSynchronize());
    CUDA_CHECK(cudaMemcpy(all.data(), base_, all.size(), cudaMemcpyDeviceToHost));
    for (size_t i = 0; i < kCanary; ++i) {
      EXPECT_EQ(all[i], '\xA5') << "written before the beginning";
      EXPECT_EQ(all[all.size() - 1 - i], '\xA5') << "written past the end";
      if (::testing::Test::HasFailure()) break;
    }
    std::vector<T> values(count_);
    std::memcpy(static_cast<void*>(values.data()), all.data() + kCanary, Bytes());
    return values;
  }

 private:
  static constexpr size_t kCanary = 4096;
  size_t Bytes() const { return static_cast<size_t>(count_) * sizeof(T); }

  char* base_ = nullptr;
  int64_t count_ = 0;
};

}  // namespace quire::gpu
