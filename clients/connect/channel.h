// OpenChannel: a gRPC channel to an endpoint, and what each of its calls carries.
#pragma once

#include <grpcpp/channel.h>
#include <grpcpp/client_context.h>
#include <grpcpp/support/channel_arguments.h>

#include <memory>

#include "clients/connect/endpoint.h"

namespace quire::connect {

// Connects lazily, at the first call, and through no HTTP proxy of the environment.
std::shared_ptr<grpc::Channel> OpenChannel(const Endpoint& endpoint,
                                           grpc::ChannelArguments arguments);

// Adds key and headers to a call. Before the call begins, once.
void AddMetadata(const Endpoint& endpoint, grpc::ClientContext* context);

}  // namespace quire::connect
