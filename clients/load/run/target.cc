// The first call to the address, and the channels to it.
#include "clients/load/run/target.h"

#include <algorithm>
#include <chrono>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "clients/connect/channel.h"
#include "clients/connect/diagnosis.h"
#include "quire/v1/control.grpc.pb.h"

namespace quire::load {
namespace {

constexpr std::chrono::seconds kAnswerWithin(10);

std::shared_ptr<grpc::Channel> MakeChannel(const connect::Endpoint& endpoint) {
  grpc::ChannelArguments arguments;
  // Channels of the same arguments would share one connection.
  arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  // A retried request would be measured as a slow one.
  arguments.SetInt(GRPC_ARG_ENABLE_RETRIES, 0);
  arguments.SetInt(GRPC_ARG_MAX_RECONNECT_BACKOFF_MS, 1000);
  arguments.SetMaxReceiveMessageSize(256 << 20);
  arguments.SetUserAgentPrefix("quire-load");
  return connect::OpenChannel(endpoint, arguments);
}

// A context of a call that is answered `within` this time.
std::unique_ptr<grpc::ClientContext> MakeContext(const connect::Endpoint& endpoint,
                                                 std::chrono::seconds within) {
  auto context = std::make_unique<grpc::ClientContext>();
  context->set_deadline(std::chrono::system_clock::now() + within);
  connect::AddMetadata(endpoint, context.get());
  return context;
}

grpc::Status AskServer(const connect::Endpoint& endpoint,
                       const std::shared_ptr<grpc::Channel>& channel, std::chrono::seconds within,
                       v1::ServerInfo* info) {
  const auto context = MakeContext(endpoint, within);
  return v1::Control::NewStub(channel)->GetServerInfo(context.get(), v1::GetServerInfoRequest(),
                                                      info);
}

absl::Status NobodyThere(const connect::Endpoint& endpoint, const grpc::Status& status) {
  const std::string& address = endpoint.server;
  const std::string cause = connect::WhyNoConnection(endpoint);
  if (!cause.empty()) {
    return absl::UnavailableError(absl::StrCat("cannot connect to ", address, ": ", cause));
  }
  return absl::UnavailableError(
      absl::StrCat("no server answers at ", address, " (", status.error_message(),
                   "); is quire-server running there? --server names it"));
}

absl::Status NotQuire(const std::string& address, const grpc::Status& status) {
  return absl::FailedPreconditionError(absl::StrCat(
      "the server at ", address, " is not a Quire server: GetServerInfo ended with status ",
      static_cast<int>(status.error_code()), " (", status.error_message(),
      "); --server takes the gRPC address, not that of the metrics"));
}

}  // namespace

absl::StatusOr<std::unique_ptr<Target>> Target::Connect(const Settings& settings) {
  // Debian builds the detector in; it takes a global lock at each mutex of gRPC.
  absl::SetMutexDeadlockDetectionMode(absl::OnDeadlockCycle::kIgnore);
  std::unique_ptr<Target> target(new Target(settings.endpoint));
  if (const absl::Status status = target->Learn(settings.model); !status.ok()) return status;
  return target;
}

absl::Status Target::Learn(const std::string& model) {
  const std::string& address = endpoint_.server;
  v1::ServerInfo server;
  const std::shared_ptr<grpc::Channel> channel = MakeChannel(endpoint_);
  const grpc::Status asked = AskServer(endpoint_, channel, kAnswerWithin, &server);
  if (asked.error_message().find("http1") != std::string::npos) return NotQuire(address, asked);
  if (asked.error_code() == grpc::StatusCode::UNAVAILABLE ||
      asked.error_code() == grpc::StatusCode::DEADLINE_EXCEEDED) {
    return NobodyThere(endpoint_, asked);
  }
  if (!asked.ok()) return NotQuire(address, asked);
  if (server.state() != v1::ServerInfo::STATE_READY) {
    return absl::UnavailableError(absl::StrCat("the server at ", address, " is not ready: it says ",
                                               v1::ServerInfo::State_Name(server.state()),
                                               "; wait for it, or start another"));
  }
  description_ = absl::StrCat("quire ", server.version(), ", ", server.device());

  const auto context = MakeContext(endpoint_, kAnswerWithin);
  v1::GetModelInfoRequest request;
  if (!model.empty()) request.set_model(model);
  v1::ModelInfo info;
  const grpc::Status status =
      v1::Control::NewStub(channel)->GetModelInfo(context.get(), request, &info);
  if (status.error_code() == grpc::StatusCode::NOT_FOUND) {
    std::string served;
    for (const std::string& name : server.models()) {
      absl::StrAppend(&served, served.empty() ? "" : ", ", name);
    }
    return absl::NotFoundError(
        absl::StrCat("the server at ", address, " does not serve ", model, " but ", served));
  }
  if (!status.ok()) return NotQuire(address, status);
  model_.name = info.model();
  model_.vocab_size = info.vocab_size();
  model_.max_model_len = static_cast<int32_t>(info.max_model_len());
  model_.eos_token_ids.assign(info.eos_token_ids().begin(), info.eos_token_ids().end());
  return absl::OkStatus();
}

absl::Status Target::Open(int32_t count) {
  for (int32_t i = 0; i < count; ++i) {
    auto connection = std::make_unique<Connection>();
    connection->channel = MakeChannel(endpoint_);
    connection->stub = v1::Inference::NewStub(connection->channel);
    connection->channel->GetState(/*try_to_connect=*/true);
    connections_.push_back(std::move(connection));
  }
  const auto deadline = std::chrono::system_clock::now() + kAnswerWithin;
  for (const auto& connection : connections_) {
    if (!connection->channel->WaitForConnected(deadline)) {
      return absl::UnavailableError(
          absl::StrCat("the server at ", endpoint_.server, " did not take ", count,
                       " connections; ask for fewer streams, or ", "--channels"));
    }
  }
  return absl::OkStatus();
}

int32_t Target::Join() {
  size_t least = 0;
  int32_t least_streams = connections_[0]->streams.load(std::memory_order_relaxed);
  for (size_t i = 1; i < connections_.size() && least_streams > 0; ++i) {
    const int32_t streams = connections_[i]->streams.load(std::memory_order_relaxed);
    if (streams < least_streams) {
      least = i;
      least_streams = streams;
    }
  }
  connections_[least]->streams.fetch_add(1, std::memory_order_relaxed);
  return static_cast<int32_t>(least);
}

void Target::Leave(int32_t connection) {
  connections_[static_cast<size_t>(connection)]->streams.fetch_sub(1, std::memory_order_relaxed);
}

v1::Inference::Stub* Target::stub(int32_t connection) {
  return connections_[static_cast<size_t>(connection)]->stub.get();
}

std::unique_ptr<v1::Sessions::Stub> Target::MakeSessionsStub() const {
  return v1::Sessions::NewStub(connections_[0]->channel);
}

bool Target::KeepsSessions() const {
  const auto context = MakeContext(endpoint_, kAnswerWithin);
  v1::ListSessionsResponse sessions;
  const auto stub = v1::Sessions::NewStub(MakeChannel(endpoint_));
  return stub->List(context.get(), v1::ListSessionsRequest(), &sessions).ok();
}

bool Target::Answers() const {
  v1::ServerInfo info;
  return AskServer(endpoint_, MakeChannel(endpoint_), std::chrono::seconds(2), &info).ok();
}

int32_t ConnectionsFor(int64_t streams) {
  constexpr int64_t kStreamsEach = 900;
  return static_cast<int32_t>(
      std::clamp<int64_t>((streams + kStreamsEach - 1) / kStreamsEach, 4, 64));
}

}  // namespace quire::load
