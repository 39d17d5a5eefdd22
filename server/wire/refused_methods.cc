// One answer for each method.
#include "server/wire/refused_methods.h"

#include "server/call/message_call.h"
#include "server/call/status_codec.h"

namespace quire {

void AddRefusedMethods(RawService* service, const CallResources* resources,
                       std::span<const RefusedMethod> methods) {
  for (const RefusedMethod& method : methods) {
    const auto refuse = [reason = method.reason](const Caller&, const grpc::ByteBuffer&,
                                                 std::string*) {
      return Refusal(absl::StatusCode::kUnimplemented, "NOT_SERVED",
                     std::string("this server does not have this method: ") + reason);
    };
    service->Add(method.path, BytesCall(resources, method.path, CallCost::kQuick, refuse));
  }
}

}  // namespace quire
