// Fuzz targets for requests, as bytes of protobuf: each takes any bytes as one and aborts if a
// decoder breaks its contract. A request that is decoded is valid; a refusal names a field or has a
// reason.
#pragma once

#include <string_view>

#include "absl/status/statusor.h"
#include "server/generate/request_codec.h"
#include "server/generate/wire_format.h"

namespace quire {

// A server with a tokenizer, chat templates, and formats of reasoning and calls.
const ServingModel& FuzzModel();

// Requests for text in one protocol; the result, which has been checked.
absl::StatusOr<ParsedRequest> DecodeChecked(const MakeWireFormat& make, std::string_view bytes);
absl::StatusOr<ParsedRequest> DecodeVllmEngineChecked(std::string_view bytes);
void FuzzQuireRequest(std::string_view bytes);
void FuzzVllmRequest(std::string_view bytes);
void FuzzOpenEngineRequest(std::string_view bytes);
void FuzzKserveRequest(std::string_view bytes);
void FuzzVllmEngineRequest(std::string_view bytes);

// A quire.v1 GenerateRequest up to its prompt: chats are read and rendered, texts tokenised.
void FuzzPrompt(std::string_view bytes);
// The first byte chooses a message type of one of the protocols, the rest is the message: our walk
// over the bytes finds a fault exactly where protobuf refuses them.
void FuzzWire(std::string_view bytes);

}  // namespace quire
