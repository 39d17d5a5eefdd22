// Fuzz targets for what servers, workers and hosts of a group send to each other: each takes any
// bytes as the other side's and aborts if a decoder breaks its contract.
#pragma once

#include <string_view>

namespace quire {

// Orders, messages and shares: what decodes, encodes to what decodes to the same.
void FuzzHandshake(std::string_view bytes);
// Plans and results: nothing is read beyond the bytes; what decodes, encodes to what decodes.
void FuzzPlanCodec(std::string_view bytes);
// Frames are the same in whatever pieces their bytes arrive, and none is longer than the limit.
void FuzzFrames(std::string_view bytes);
// The first byte is the kind of a frame, the rest its content: without the group's key, neither a
// leader nor a follower accepts the other side, and each refusal has a reason.
void FuzzGreeting(std::string_view bytes);

}  // namespace quire
