// TokenEncoder: messages of openengine.v1 that carry tokens, as wire bytes. The protocol has a
// message of its own for each token, so the objects of the message API would cost more than all
// else that the server does for a token.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace quire {

class TokenEncoder {
 public:
  // `request_id` stands in each message.
  explicit TokenEncoder(std::string_view request_id);

  // A GenerateResponse with a TokenOutput of index 0: byte for byte that of the message API.
  // `logprobs` belong to the first tokens; there may be fewer than ids.
  std::string Encode(std::span<const uint32_t> ids, std::span<const float> logprobs,
                     std::string_view text) const;

 private:
  const std::string head_;  // the field request_id
};

}  // namespace quire
