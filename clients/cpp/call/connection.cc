// The channel's settings: answers of any size a server may send.
#include "clients/cpp/call/connection.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "clients/connect/channel.h"
#include "clients/connect/diagnosis.h"

namespace quire::cli {
namespace {

constexpr char kSessionHeader[] = "x-quire-session";

// The library ends the process at a header value that is none.
bool IsHeaderValue(const std::string& text) {
  return text.size() <= 512 &&
         std::all_of(text.begin(), text.end(), [](char c) { return c >= ' ' && c <= '~'; });
}

// gRPC says "Socket closed" where a certificate is missing.
grpc::Status WithCause(const connect::Endpoint& endpoint, const grpc::Status& status) {
  const std::string& message = status.error_message();
  const bool unconnected =
      status.error_code() == grpc::StatusCode::UNAVAILABLE &&
      (message.starts_with("failed to connect") || message.starts_with("DNS resolution failed"));
  const std::string cause = unconnected ? connect::WhyNoConnection(endpoint) : "";
  if (cause.empty()) return status;
  return grpc::Status(status.error_code(), "cannot connect to " + endpoint.server + ": " + cause);
}

}  // namespace

Connection::Connection(connect::Endpoint endpoint, double timeout_seconds, Interrupt* interrupt,
                       const std::string& traceparent)
    : endpoint_(std::move(endpoint)),
      timeout_seconds_(timeout_seconds),
      interrupt_(interrupt),
      traceparent_(IsHeaderValue(traceparent) ? traceparent : "") {
  grpc::ChannelArguments arguments;
  // A long completion with ids and log probabilities passes the library's 4 MiB.
  arguments.SetMaxReceiveMessageSize(256 << 20);
  arguments.SetUserAgentPrefix("quire");
  const std::shared_ptr<grpc::Channel> channel = connect::OpenChannel(endpoint_, arguments);
  inference_ = v1::Inference::NewStub(channel);
  control_ = v1::Control::NewStub(channel);
  sessions_ = v1::Sessions::NewStub(channel);
  jobs_ = v1::Jobs::NewStub(channel);
  health_ = grpc::health::v1::Health::NewStub(channel);
}

grpc::Status Connection::Run(const std::function<grpc::Status(grpc::ClientContext*)>& call) {
  grpc::ClientContext context;
  connect::AddMetadata(endpoint_, &context);
  if (!traceparent_.empty()) context.AddMetadata("traceparent", traceparent_);
  if (!session_.empty()) context.AddMetadata(kSessionHeader, session_);
  if (timeout_seconds_ > 0) {
    context.set_deadline(std::chrono::system_clock::now() +
                         std::chrono::duration_cast<std::chrono::system_clock::duration>(
                             std::chrono::duration<double>(timeout_seconds_)));
  }
  interrupt_->Arm([&context] { context.TryCancel(); });
  const grpc::Status status = call(&context);
  interrupt_->Disarm();
  return WithCause(endpoint_, status);
}

void Connection::UseSession(const std::string& name) {
  const bool named = std::ranges::any_of(
      endpoint_.headers, [](const auto& header) { return header.first == kSessionHeader; });
  session_ = !named && IsHeaderValue(name) ? name : "";
}

std::unique_ptr<Connection> Connection::To(connect::Endpoint endpoint) const {
  return std::make_unique<Connection>(std::move(endpoint), timeout_seconds_, interrupt_,
                                      traceparent_);
}

}  // namespace quire::cli
