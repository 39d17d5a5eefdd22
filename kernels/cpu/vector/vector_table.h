// Gathers the inner loops into the table of one instruction set. Included after its vec16_*.h.
#pragma once

#include "kernels/cpu/vector/vector_attention.h"
#include "kernels/cpu/vector/vector_matmul.h"
#include "kernels/cpu/vector/vector_rows.h"
#include "kernels/cpu/vector/vector_sampling.h"

namespace quire::cpu {
namespace {

constexpr VectorKernels kTable = {
    .isa = kThisIsa,
    .widen = Widen,
    .narrow = Narrow,
    .add = Add,
    .rms_norm = RmsNormRow,
    .layer_norm = LayerNormOfRun,
    .add_scaled = AddScaledRow,
    .scale = ScaleRow,
    .gelu = GeluRow,
    .silu_mul = SiluMulRow,
    .rotate = RotateHead,
    .matmul = MatMulKernel,
    .attend = Attend,
    .fold = FoldState,
    .finish = FinishState,
    .row_stats = StatsOfRow,
    .exp_mass = ExpMass,
    .exp = ExpOfRow,
    .scale_logits = ScaleLogits,
    .find = FindValue,
    .draw = DrawToken,
};

}  // namespace
}  // namespace quire::cpu
