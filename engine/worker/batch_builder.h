// BatchBuilder: turns a plan and the row tables into the flat arrays of ModelInput. Pure data in,
// pure data out; capacities are taken once, so a step allocates nothing.
#pragma once

#include <cstdint>
#include <vector>

#include "engine/model/model_input.h"
#include "engine/step_plan.h"
#include "engine/worker/row_tables.h"

namespace quire {

class BatchBuilder {
 public:
  BatchBuilder(int32_t max_tokens, int32_t max_rows);
  // The arrays stay valid until the next Build.
  ModelInput Build(const StepPlan& plan, const RowTables& tables);

 private:
  std::vector<int32_t> token_ids_;    // [T]
  std::vector<int32_t> positions_;    // [T]
  std::vector<int64_t> slots_;        // [T]
  std::vector<int32_t> query_begin_;  // [S + 1]
  std::vector<int32_t> context_len_;  // [S]
  std::vector<int32_t> table_row_;    // [S]
  std::vector<int32_t> logit_rows_;   // [R]
};

}  // namespace quire
