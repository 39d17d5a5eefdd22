// The bytes of TokenEncoder are those that protobuf's message API makes of the same values.
#include "server/wire/openengine/token_encoder.h"

#include <gtest/gtest.h>

#include <limits>
#include <random>
#include <string>
#include <vector>

#include "field/openengine.pb.h"

namespace quire {
namespace {

namespace oe = openengine::v1;

std::string ByMessages(const std::string& request_id, const std::vector<uint32_t>& ids,
                       const std::vector<float>& logprobs, const std::string& text) {
  oe::GenerateResponse response;
  response.set_request_id(request_id);
  oe::TokenOutput* output = response.mutable_token();
  output->set_output_index(0);
  output->set_text(text);
  for (size_t i = 0; i < ids.size(); ++i) {
    oe::TokenInfo* token = output->add_tokens();
    token->set_token_id(ids[i]);
    if (i < logprobs.size()) token->set_logprob(static_cast<double>(logprobs[i]));
  }
  return response.SerializeAsString();
}

void ExpectSame(const std::string& request_id, const std::vector<uint32_t>& ids,
                const std::vector<float>& logprobs, const std::string& text) {
  const std::string bytes = TokenEncoder(request_id).Encode(ids, logprobs, text);
  ASSERT_EQ(bytes, ByMessages(request_id, ids, logprobs, text))
      << ids.size() << " ids, " << logprobs.size() << " logprobs, " << text.size() << " of text";
}

TEST(TokenEncoderTest, TokensAtTheEdgesOfTheirVarints) {
  ExpectSame("r", {0}, {}, "");
  ExpectSame("r", {0}, {-0.0f}, "a");
  ExpectSame("", {}, {}, "text alone");
  for (int bit = 0; bit < 32; ++bit) {
    const uint32_t power = uint32_t{1} << bit;
    ExpectSame("id", {power - 1, power, power + 1}, {-1.5f}, "x");
  }
  ExpectSame("r", {std::numeric_limits<uint32_t>::max()}, {std::numeric_limits<float>::lowest()},
             "");
}

TEST(TokenEncoderTest, LengthsAtTheEdgesOfTheirVarints) {
  for (const size_t length : {126, 127, 128, 129, 16'383, 16'384, 2'100'000}) {
    ExpectSame(std::string(length % 300, 'r'), {7}, {}, std::string(length, 't'));
  }
  for (const size_t count : {18, 19, 20, 31, 32, 33, 1170, 1171, 4096, 5000}) {
    ExpectSame("r", std::vector<uint32_t>(count, 32'000), {}, "");
    ExpectSame("r", std::vector<uint32_t>(count, 200), std::vector<float>(count, -0.25f),
               "\xC3\xA9");
  }
}

TEST(TokenEncoderTest, RandomOutputs) {
  std::mt19937 random(11);
  for (int i = 0; i < 3000; ++i) {
    std::vector<uint32_t> ids(random() % 40);
    for (uint32_t& id : ids) id = random() >> random() % 32;
    std::vector<float> logprobs(random() % 2 == 0 ? 0 : random() % (ids.size() + 1));
    for (float& value : logprobs) value = -static_cast<float>(random() % 4096) / 64;
    ExpectSame(std::string(random() % 200, 'r'), ids, logprobs,
               std::string(random() % 3 == 0 ? 0 : random() % 300, 't'));
  }
}

}  // namespace
}  // namespace quire
