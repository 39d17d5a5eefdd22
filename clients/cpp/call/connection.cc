// The channel's settings: no proxies, answers of any size a server may send.
#include "clients/cpp/call/connection.h"

#include <grpcpp/create_channel.h>
#include <grpcpp/security/credentials.h>

#include <algorithm>
#include <chrono>

namespace quire::cli {
namespace {

// The library ends the process at a header value that is none.
bool IsHeaderValue(const std::string& text) {
  return text.size() <= 512 &&
         std::all_of(text.begin(), text.end(), [](char c) { return c >= ' ' && c <= '~'; });
}

}  // namespace

Connection::Connection(const std::string& server, double timeout_seconds, Interrupt* interrupt,
                       const std::string& traceparent)
    : timeout_seconds_(timeout_seconds),
      interrupt_(interrupt),
      traceparent_(IsHeaderValue(traceparent) ? traceparent : "") {
  grpc::ChannelArguments arguments;
  // A long completion with ids and log probabilities passes the library's 4 MiB.
  arguments.SetMaxReceiveMessageSize(256 << 20);
  // An HTTP proxy of the environment is meant for the web, not for the machine next door.
  arguments.SetInt(GRPC_ARG_ENABLE_HTTP_PROXY, 0);
  arguments.SetUserAgentPrefix("quire");
  std::shared_ptr<grpc::Channel> channel =
      grpc::CreateCustomChannel(server, grpc::InsecureChannelCredentials(), arguments);
  inference_ = v1::Inference::NewStub(channel);
  control_ = v1::Control::NewStub(channel);
  sessions_ = v1::Sessions::NewStub(channel);
  health_ = grpc::health::v1::Health::NewStub(channel);
}

grpc::Status Connection::Run(const std::function<grpc::Status(grpc::ClientContext*)>& call) {
  grpc::ClientContext context;
  if (!traceparent_.empty()) context.AddMetadata("traceparent", traceparent_);
  if (timeout_seconds_ > 0) {
    context.set_deadline(std::chrono::system_clock::now() +
                         std::chrono::duration_cast<std::chrono::system_clock::duration>(
                             std::chrono::duration<double>(timeout_seconds_)));
  }
  interrupt_->Arm([&context] { context.TryCancel(); });
  const grpc::Status status = call(&context);
  interrupt_->Disarm();
  return status;
}

}  // namespace quire::cli
