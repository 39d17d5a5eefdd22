// The descriptors are members, not on the heap, so that every call can make its own LtProduct.
#include "kernels/cuda/matmul/lt_product.h"

#include <algorithm>
#include <bit>

#include "kernels/cuda/device/check.h"

namespace quire::cuda {
namespace {

static_assert(sizeof(cublasLtMatmulAlgo_t) == sizeof(AlgorithmWords));

// Up to so many columns, 8-bit products stay in the matrix units from the first to the last, which
// is up to a tenth faster. Each addition there drops all but 13 bits of the fraction: over so many
// columns that is less than a sixth of the error of the 8 bits themselves (ADR 19).
constexpr int64_t kMostFastColumns = 8192;

cudaDataType_t LtType(DType dtype) {
  switch (dtype) {
    case DType::kBF16: return CUDA_R_16BF;
    case DType::kF16: return CUDA_R_16F;
    case DType::kE4M3: return CUDA_R_8F_E4M3;
    default: CHECK(dtype == DType::kF32); return CUDA_R_32F;
  }
}

cublasLtMatrixLayoutOpaque_t LayoutOf(const TensorView& t) {
  cublasLtMatrixLayoutOpaque_t layout;
  CUDA_CHECK(cublasLtMatrixLayoutInit(&layout, LtType(t.dtype), static_cast<uint64_t>(t.dim[1]),
                                      static_cast<uint64_t>(t.dim[0]), t.row_stride));
  return layout;
}

template <typename T>
void Set(cublasLtMatmulDescOpaque_t& operation, cublasLtMatmulDescAttributes_t what, T value) {
  CUDA_CHECK(cublasLtMatmulDescSetAttribute(&operation, what, &value, sizeof value));
}
void Set(cublasLtMatmulPreferenceOpaque_t& preference, cublasLtMatmulPreferenceAttributes_t what,
         uint64_t value) {
  CUDA_CHECK(cublasLtMatmulPreferenceSetAttribute(&preference, what, &value, sizeof value));
}
void Set(cublasLtMatmulPreferenceOpaque_t& preference, cublasLtMatmulPreferenceAttributes_t what,
         uint32_t value) {
  CUDA_CHECK(cublasLtMatmulPreferenceSetAttribute(&preference, what, &value, sizeof value));
}

uint8_t AlignmentOf(const TensorView& t) {
  const uint64_t bits = reinterpret_cast<uintptr_t>(t.data) |
                        static_cast<uint64_t>(BytesOf(t.dtype, t.row_stride)) | 16;
  return static_cast<uint8_t>(uint64_t{1} << std::countr_zero(bits));
}

}  // namespace

ProductShape ShapeOf(const MatMulParams& p) {
  return {.tokens = static_cast<int32_t>(p.x.dim[0]),
          .n = static_cast<int32_t>(p.w.dim[0]),
          .k = static_cast<int32_t>(p.w.dim[1]),
          .in = p.w.dtype,
          .out = p.out.dtype,
          .bias = !p.bias.empty(),
          .block_scales = p.w.scale_columns > 0,
          .x_alignment = AlignmentOf(p.x),
          .w_alignment = AlignmentOf(p.w),
          .out_alignment = AlignmentOf(p.out)};
}

LtProduct::LtProduct(const MatMulParams& p)
    : p_(p), w_(LayoutOf(p.w)), x_(LayoutOf(p.x)), out_(LayoutOf(p.out)) {
  CUDA_CHECK(cublasLtMatmulDescInit(&operation_, CUBLAS_COMPUTE_32F, CUDA_R_32F));
  Set(operation_, CUBLASLT_MATMUL_DESC_TRANSA, CUBLAS_OP_T);
  if (p.w.scales != nullptr) {
    Set(operation_, CUBLASLT_MATMUL_DESC_A_SCALE_MODE, CUBLASLT_MATMUL_MATRIX_SCALE_OUTER_VEC_32F);
    Set(operation_, CUBLASLT_MATMUL_DESC_B_SCALE_MODE, CUBLASLT_MATMUL_MATRIX_SCALE_OUTER_VEC_32F);
    Set(operation_, CUBLASLT_MATMUL_DESC_A_SCALE_POINTER, static_cast<const void*>(p.w.scales));
    Set(operation_, CUBLASLT_MATMUL_DESC_B_SCALE_POINTER, static_cast<const void*>(p.x.scales));
    Set(operation_, CUBLASLT_MATMUL_DESC_FAST_ACCUM, int8_t{p.w.dim[1] <= kMostFastColumns});
  }
  if (!p.bias.empty()) {
    Set(operation_, CUBLASLT_MATMUL_DESC_EPILOGUE, CUBLASLT_EPILOGUE_BIAS);
    Set(operation_, CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE, LtType(p.bias.dtype));
    Set(operation_, CUBLASLT_MATMUL_DESC_BIAS_POINTER, static_cast<const void*>(p.bias.data));
  }
}

std::vector<AlgorithmWords> LtProduct::Candidates(const LtDevice& device, int count) {
  cublasLtMatmulPreferenceOpaque_t preference;
  CUDA_CHECK(cublasLtMatmulPreferenceInit(&preference));
  const ProductShape shape = ShapeOf(p_);
  Set(preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES,
      static_cast<uint64_t>(device.workspace_bytes));
  // An algorithm with partial sums writes them to the workspace as f32, and a second kernel adds
  // them.
  Set(preference, CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK,
      static_cast<uint32_t>(CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE));
  Set(preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, uint32_t{shape.w_alignment});
  Set(preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, uint32_t{shape.x_alignment});
  Set(preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, uint32_t{shape.out_alignment});
  Set(preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, uint32_t{shape.out_alignment});
  std::vector<cublasLtMatmulHeuristicResult_t> results(static_cast<size_t>(count));
  int found = 0;
  CUDA_CHECK(cublasLtMatmulAlgoGetHeuristic(device.handle, &operation_, &w_, &x_, &out_, &out_,
                                            &preference, count, results.data(), &found));
  std::vector<AlgorithmWords> algorithms;
  for (int i = 0; i < found; ++i) {
    if (results[i].state != CUBLAS_STATUS_SUCCESS) continue;
    algorithms.push_back(std::bit_cast<AlgorithmWords>(results[i].algo));
  }
  return algorithms;
}

cublasStatus_t LtProduct::Enqueue(const LtDevice& device, const AlgorithmWords& algorithm) {
  const float one = 1, zero = 0;
  const auto algo = std::bit_cast<cublasLtMatmulAlgo_t>(algorithm);
  return cublasLtMatmul(device.handle, &operation_, &one, p_.w.data, &w_, p_.x.data, &x_, &zero,
                        p_.out.data, &out_, p_.out.data, &out_, &algo, device.workspace,
                        device.workspace_bytes, device.stream);
}

}  // namespace quire::cuda
