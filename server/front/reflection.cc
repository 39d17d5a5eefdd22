// One bidirectional stream that alternates requests and answers.
#include "server/front/reflection.h"

#include <google/protobuf/descriptor.h>
#include <google/protobuf/descriptor.pb.h>

#include <set>
#include <utility>

#include "grpc/reflection/v1/reflection.pb.h"
#include "server/call/connection_table.h"
#include "server/call/message_call.h"
#include "server/call/status_codec.h"
#include "server/call/wire_check.h"

namespace quire {
namespace {

using google::protobuf::DescriptorPool;
using google::protobuf::FileDescriptor;
using grpc::reflection::v1::ServerReflectionRequest;
using grpc::reflection::v1::ServerReflectionResponse;

// Adds `file` and all its imports, dependencies first.
void AddFiles(const FileDescriptor* file, std::set<std::string>* seen,
              grpc::reflection::v1::FileDescriptorResponse* out) {
  if (!seen->insert(file->name()).second) return;
  for (int i = 0; i < file->dependency_count(); ++i) AddFiles(file->dependency(i), seen, out);
  google::protobuf::FileDescriptorProto proto;
  file->CopyTo(&proto);
  out->add_file_descriptor_proto(proto.SerializeAsString());
}

void Answer(const ServerReflectionRequest& request, const std::vector<std::string>& services,
            ServerReflectionResponse* response) {
  const DescriptorPool* pool = DescriptorPool::generated_pool();
  const FileDescriptor* file = nullptr;
  switch (request.message_request_case()) {
    case ServerReflectionRequest::kListServices:
      for (const std::string& name : services) {
        response->mutable_list_services_response()->add_service()->set_name(name);
      }
      return;
    case ServerReflectionRequest::kFileByFilename:
      file = pool->FindFileByName(request.file_by_filename());
      break;
    case ServerReflectionRequest::kFileContainingSymbol:
      file = pool->FindFileContainingSymbol(request.file_containing_symbol());
      break;
    default:
      response->mutable_error_response()->set_error_code(grpc::StatusCode::UNIMPLEMENTED);
      response->mutable_error_response()->set_error_message("proto3 services have no extensions");
      return;
  }
  if (file == nullptr) {
    response->mutable_error_response()->set_error_code(grpc::StatusCode::NOT_FOUND);
    response->mutable_error_response()->set_error_message("this server has no such file or symbol");
    return;
  }
  std::set<std::string> seen;
  AddFiles(file, &seen, response->mutable_file_descriptor_response());
}

// Reads and writes alternate, so no lock is needed. Finish is called only from their callbacks: a
// cancelled call makes the pending operation fail.
class ReflectionReactor final : public grpc::ServerBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer> {
 public:
  ReflectionReactor(ConnectionTable* connections, int64_t max_reply_bytes,
                    const std::vector<std::string>* services, const std::string& peer)
      : max_reply_bytes_(max_reply_bytes), services_(services), call_(connections, peer) {
    StartRead(&in_);
  }

  void OnReadDone(bool ok) override {
    if (!ok) return Finish(grpc::Status::OK);
    ServerReflectionRequest request;
    const absl::Status status = ParseMessage(in_, &request);
    if (!status.ok()) return Finish(ToGrpcStatus(status));
    ServerReflectionResponse response;
    response.set_valid_host(request.host());
    *response.mutable_original_request() = request;
    Answer(request, *services_, &response);
    // The answer contains the request, so a large request has no answer that fits.
    const absl::Status fits = CheckReplySize(max_reply_bytes_, response);
    if (!fits.ok()) return Finish(ToGrpcStatus(fits));
    const std::string bytes = response.SerializeAsString();
    out_ = ToByteBuffer(bytes.data(), bytes.size());
    StartWrite(&out_);
  }
  void OnWriteDone(bool ok) override {
    if (!ok) return Finish(grpc::Status::CANCELLED);
    StartRead(&in_);
  }
  void OnDone() override { delete this; }

 private:
  const int64_t max_reply_bytes_;
  const std::vector<std::string>* const services_;
  const OpenCall call_;
  grpc::ByteBuffer in_;
  grpc::ByteBuffer out_;
};

}  // namespace

std::unique_ptr<RawService> MakeReflectionService(const CallResources* resources,
                                                  std::vector<std::string> services) {
  auto service = std::make_unique<RawService>(&resources->door);
  const auto names = std::make_shared<const std::vector<std::string>>(std::move(services));
  const auto start = [resources, names](const IncomingCall& call) {
    return static_cast<grpc::ServerBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer>*>(
        new ReflectionReactor(&resources->connections, resources->options.max_reply_bytes,
                              names.get(), call.context->peer()));
  };
  service->Add("/grpc.reflection.v1.ServerReflection/ServerReflectionInfo",
               RawService::Bidi(start));
  service->Add("/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo",
               RawService::Bidi(start));
  return service;
}

}  // namespace quire
