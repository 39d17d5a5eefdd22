// The parts that the status of a call would have.
#include "server/lines/item_status.h"

#include <grpcpp/support/status.h>

#include "quire/v1/inference.pb.h"
#include "server/call/status_codec.h"

namespace quire {

void FillItemStatus(const absl::Status& status, v1::ItemStatus* out) {
  const grpc::Status ended = ToGrpcStatus(status);
  out->set_code(static_cast<uint32_t>(ended.error_code()));
  out->set_message(ended.error_message());
  if (!ReasonOf(status).empty()) out->set_reason(ReasonOf(status));
  if (!FieldOf(status).empty()) out->set_field(FieldOf(status));
}

}  // namespace quire
