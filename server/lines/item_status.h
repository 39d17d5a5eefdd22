// ItemStatus: why one of many items has no result, as a message: a batch's and a job's.
#pragma once

#include "absl/status/status.h"

namespace quire {

namespace v1 {
class ItemStatus;
}  // namespace v1

// `status` is not OK.
void FillItemStatus(const absl::Status& status, v1::ItemStatus* out);

}  // namespace quire
