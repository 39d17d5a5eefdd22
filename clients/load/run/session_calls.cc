// Each call owns its context and messages until it is answered. It is destroyed before End, for the
// reason that StreamEnds has.
#include "clients/load/run/session_calls.h"

#include <grpcpp/client_context.h>

#include <chrono>
#include <utility>

#include "clients/connect/channel.h"

namespace quire::load {
namespace {

template <typename Request, typename Reply>
struct Call {
  grpc::ClientContext context;
  Request request;
  Reply reply;

  explicit Call(const connect::Endpoint& endpoint) {
    context.set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(10));
    connect::AddMetadata(endpoint, &context);
  }
};

}  // namespace

SessionCalls::SessionCalls(std::unique_ptr<v1::Sessions::Stub> stub,
                           const connect::Endpoint& endpoint)
    : stub_(std::move(stub)), endpoint_(endpoint) {}

SessionCalls::~SessionCalls() { Wait(); }

void SessionCalls::Fork(const SessionFork& fork, std::function<void()> done) {
  auto call = std::make_shared<Call<v1::ForkSessionRequest, v1::Session>>(endpoint_);
  call->request.set_session_id(fork.from);
  call->request.set_new_session_id(fork.to);
  call->request.set_position(static_cast<uint32_t>(fork.position));
  Begin();
  auto* const owned = call.get();
  stub_->async()->Fork(
      &owned->context, &owned->request, &owned->reply,
      [this, call = std::move(call), done = std::move(done)](const grpc::Status&) mutable {
        done();
        done = nullptr;
        call.reset();
        End();
      });
}

void SessionCalls::Close(const std::string& session) {
  auto call = std::make_shared<Call<v1::CloseSessionRequest, v1::CloseSessionResponse>>(endpoint_);
  call->request.set_session_id(session);
  Begin();
  auto* const owned = call.get();
  stub_->async()->Close(&owned->context, &owned->request, &owned->reply,
                        [this, call = std::move(call)](const grpc::Status&) mutable {
                          call.reset();
                          End();
                        });
}

void SessionCalls::Wait() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [this] { return in_flight_ == 0; });
}

void SessionCalls::Begin() {
  std::lock_guard lock(mutex_);
  ++in_flight_;
}

void SessionCalls::End() {
  std::lock_guard lock(mutex_);
  --in_flight_;
  changed_.notify_all();
}

}  // namespace quire::load
