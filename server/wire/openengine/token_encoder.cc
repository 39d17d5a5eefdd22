// All sizes first, then all bytes into one string. Every field number here is below 16, so a tag is
// one byte, and a TokenInfo has at most 15 bytes, so its length is one byte too.
#include "server/wire/openengine/token_encoder.h"

#include <google/protobuf/io/coded_stream.h>

#include <algorithm>
#include <bit>
#include <cstring>

#include "field/openengine.pb.h"

namespace quire {
namespace {

namespace oe = openengine::v1;
using google::protobuf::io::CodedOutputStream;

enum WireType : uint32_t { kVarint = 0, kFixed64 = 1, kDelimited = 2 };

constexpr uint8_t Tag(int field, WireType type) {
  return static_cast<uint8_t>(static_cast<uint32_t>(field) << 3 | type);
}

// Of GenerateResponse, of TokenOutput, and of TokenInfo.
constexpr uint8_t kRequestId = Tag(oe::GenerateResponse::kRequestIdFieldNumber, kDelimited);
constexpr uint8_t kToken = Tag(oe::GenerateResponse::kTokenFieldNumber, kDelimited);
constexpr uint8_t kOutputIndex = Tag(oe::TokenOutput::kOutputIndexFieldNumber, kVarint);
constexpr uint8_t kTokens = Tag(oe::TokenOutput::kTokensFieldNumber, kDelimited);
constexpr uint8_t kText = Tag(oe::TokenOutput::kTextFieldNumber, kDelimited);
constexpr uint8_t kTokenId = Tag(oe::TokenInfo::kTokenIdFieldNumber, kVarint);
constexpr uint8_t kLogprob = Tag(oe::TokenInfo::kLogprobFieldNumber, kFixed64);
constexpr size_t kIndexBytes = 2;
constexpr size_t kLogprobBytes = 1 + sizeof(double);

// An id of 0 is the default of its field, which the message API leaves out.
size_t IdBytes(uint32_t id) { return id == 0 ? 0 : 1 + CodedOutputStream::VarintSize32(id); }

// A tag, a length and that many bytes; nothing if there are none.
size_t DelimitedBytes(size_t bytes) {
  if (bytes == 0) return 0;
  return 1 + CodedOutputStream::VarintSize32(static_cast<uint32_t>(bytes)) + bytes;
}

uint8_t* WriteHead(uint8_t tag, size_t bytes, uint8_t* out) {
  *out++ = tag;
  return CodedOutputStream::WriteVarint32ToArray(static_cast<uint32_t>(bytes), out);
}

uint8_t* WriteDelimited(uint8_t tag, std::string_view bytes, uint8_t* out) {
  if (bytes.empty()) return out;
  out = WriteHead(tag, bytes.size(), out);
  std::memcpy(out, bytes.data(), bytes.size());
  return out + bytes.size();
}

}  // namespace

TokenEncoder::TokenEncoder(std::string_view request_id)
    : head_([request_id] {
        std::string head(DelimitedBytes(request_id.size()), '\0');
        WriteDelimited(kRequestId, request_id, reinterpret_cast<uint8_t*>(head.data()));
        return head;
      }()) {}

std::string TokenEncoder::Encode(std::span<const uint32_t> ids, std::span<const float> logprobs,
                                 std::string_view text) const {
  const size_t with_logprob = std::min(ids.size(), logprobs.size());
  // A tag and a length for each token.
  size_t output_bytes = kIndexBytes + 2 * ids.size() + kLogprobBytes * with_logprob;
  for (const uint32_t id : ids) output_bytes += IdBytes(id);
  output_bytes += DelimitedBytes(text.size());
  std::string bytes(head_.size() + DelimitedBytes(output_bytes), '\0');
  auto* out = reinterpret_cast<uint8_t*>(bytes.data());
  std::memcpy(out, head_.data(), head_.size());
  out = WriteHead(kToken, output_bytes, out + head_.size());
  *out++ = kOutputIndex;
  *out++ = 0;
  for (size_t i = 0; i < ids.size(); ++i) {
    const bool logprob = i < with_logprob;
    *out++ = kTokens;
    *out++ = static_cast<uint8_t>(IdBytes(ids[i]) + (logprob ? kLogprobBytes : 0));
    if (ids[i] != 0) {
      *out++ = kTokenId;
      out = CodedOutputStream::WriteVarint32ToArray(ids[i], out);
    }
    if (!logprob) continue;
    *out++ = kLogprob;
    const auto value = std::bit_cast<uint64_t>(static_cast<double>(logprobs[i]));
    out = CodedOutputStream::WriteLittleEndian64ToArray(value, out);
  }
  WriteDelimited(kText, text, out);
  return bytes;
}

}  // namespace quire
