// Shared by the kernel tests: deterministic random data in any dtype, buffers of exact size (so
// that the address sanitizer sees a read past the end), the machines to run on, and error bounds.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "kernels/cpu/cpu_backend.h"
#include "kernels/ops.h"
#include "kernels/tensor.h"

namespace quire {

// Half the distance from 1 to the next float: the relative error of one rounding.
inline constexpr double kRounding = 0x1p-24;

// Relative error of a sum of n products in Vec16 order: n / 16 fused additions a lane, then the
// tree.
inline double SumError(int64_t n) { return (static_cast<double>(n) / 16.0 + 6.0) * kRounding; }

// Relative error of storing a float as `dtype`.
inline double StoreError(DType dtype) {
  if (dtype == DType::kE4M3) return 0x1p-4;
  return dtype == DType::kF32 ? 0.0 : dtype == DType::kBF16 ? 0x1p-8 : 0x1p-11;
}

// splitmix64.
class Random {
 public:
  explicit Random(uint64_t seed) : state_(seed) {}

  uint64_t Next() {
    uint64_t z = (state_ += 0x9e3779b97f4a7c15u);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
  }
  // In [0, 1).
  double Uniform() { return static_cast<double>(Next() >> 11) * 0x1p-53; }
  double Normal() {
    return std::sqrt(-2.0 * std::log(1.0 - Uniform())) * std::cos(6.283185307179586 * Uniform());
  }
  // In [0, n).
  int64_t Below(int64_t n) { return static_cast<int64_t>(Next() % static_cast<uint64_t>(n)); }

 private:
  uint64_t state_;
};

// A tensor in host memory of exactly its size.
class Array {
 public:
  Array() = default;
  Array(DType dtype, std::vector<int64_t> dims) : dtype_(dtype), dims_(std::move(dims)) {
    size_ = 1;
    for (int64_t d : dims_) size_ *= d;
    bytes_ = std::make_unique<char[]>(byte_size());
  }

  static Array Normal(Random& random, DType dtype, std::vector<int64_t> dims, double scale = 1.0) {
    Array a(dtype, std::move(dims));
    for (int64_t i = 0; i < a.size_; ++i) a.Set(i, static_cast<float>(random.Normal() * scale));
    return a;
  }

  int64_t size() const { return size_; }
  size_t byte_size() const { return static_cast<size_t>(size_) * SizeOf(dtype_); }
  void* data() { return bytes_.get(); }
  float* floats() { return reinterpret_cast<float*>(bytes_.get()); }
  const float* floats() const { return reinterpret_cast<const float*>(bytes_.get()); }

  void Set(int64_t i, float x) {
    DispatchElement(dtype_, [&](auto tag) {
      using T = decltype(tag);
      const T value = FromFloat<T>(x);
      std::memcpy(bytes_.get() + i * sizeof(T), &value, sizeof(T));
    });
  }
  double operator[](int64_t i) const {
    return DispatchElement(dtype_, [&](auto tag) {
      decltype(tag) value;
      std::memcpy(&value, bytes_.get() + i * sizeof(value), sizeof(value));
      return static_cast<double>(ToFloat(value));
    });
  }
  void Fill(float x) {
    for (int64_t i = 0; i < size_; ++i) Set(i, x);
  }

  TensorView view() {
    TensorView v;
    v.data = bytes_.get();
    v.dtype = dtype_;
    v.rank = static_cast<int>(dims_.size());
    v.row_stride = 1;
    for (size_t i = 0; i < dims_.size(); ++i) {
      v.dim[i] = dims_[i];
      if (i > 0) v.row_stride *= dims_[i];
    }
    return v;
  }

  Array Copy() const {
    Array a(dtype_, dims_);
    std::memcpy(a.bytes_.get(), bytes_.get(), byte_size());
    return a;
  }
  bool SameBits(const Array& other) const {
    return byte_size() == other.byte_size() &&
           std::memcmp(bytes_.get(), other.bytes_.get(), byte_size()) == 0;
  }

 private:
  DType dtype_ = DType::kF32;
  std::vector<int64_t> dims_;
  int64_t size_ = 0;
  std::unique_ptr<char[]> bytes_;
};

struct Machine {
  cpu::Isa isa;
  int threads;
  std::string name() const {
    return std::string(Name(isa)) + " with " + std::to_string(threads) + " threads";
  }
};

// Every instruction set that this processor runs, with one thread and with three, which divide no
// work evenly.
inline std::vector<Machine> Machines() {
  std::vector<Machine> machines;
  for (cpu::Isa isa : cpu::SupportedIsas()) {
    machines.push_back({isa, 1});
    machines.push_back({isa, 3});
  }
  return machines;
}

inline std::unique_ptr<Backend> MakeBackend(const Machine& machine) {
  return std::move(
      CreateCpuBackends(CpuOptions{.threads_total = machine.threads, .isa = machine.isa})[0]);
}

// Calls fn(backend, machine) on every machine. Backends live as long as the program.
template <typename Fn>
void OnEveryMachine(Fn fn) {
  static std::vector<std::pair<Machine, std::unique_ptr<Backend>>> backends = [] {
    std::vector<std::pair<Machine, std::unique_ptr<Backend>>> all;
    for (const Machine& m : Machines()) all.emplace_back(m, MakeBackend(m));
    return all;
  }();
  for (auto& [machine, backend] : backends) fn(*backend, machine);
}

inline constexpr DType kFloatTypes[] = {DType::kF32, DType::kBF16, DType::kF16};
// Of keys and values.
inline constexpr DType kKvTypes[] = {DType::kF32, DType::kBF16, DType::kF16, DType::kE4M3};

// Scales of the heads of 8-bit keys and values, an arbitrary one for each head, else none.
struct KvScales {
  std::vector<float> k, v;

  KvScales() = default;
  KvScales(DType cache, int32_t kv_heads) {
    for (int32_t h = 0; cache == DType::kE4M3 && h < kv_heads; ++h) {
      k.push_back(0.37f + 0.21f * static_cast<float>(h));
      v.push_back(1.7f / static_cast<float>(h + 1));
    }
  }
  void Set(KvLayerView& kv) const {
    kv.k_scales = k.empty() ? nullptr : k.data();
    kv.v_scales = v.empty() ? nullptr : v.data();
  }
  // The factor of elements of K (kind 0) or of V.
  double Of(int kind, int64_t head) const {
    return k.empty() ? 1.0 : double{(kind == 0 ? k : v)[static_cast<size_t>(head)]};
  }
};

}  // namespace quire
