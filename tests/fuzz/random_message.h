// RandomMessage: messages of any type with random values, and with fields that the type does not
// have. ForInputs: these and mutations of them, as the bytes that a server gets.
#pragma once

#include <google/protobuf/message.h>

#include <cstdint>
#include <functional>
#include <random>
#include <string>
#include <vector>

#include "tests/fuzz/fuzz_seed.h"

namespace quire {

class RandomMessage {
 public:
  // The same seed gives the same messages.
  explicit RandomMessage(uint32_t seed) : random_(FuzzSeed(seed)) {}

  // Sets about half of the fields, of nested messages too, to values at and beyond the edges of
  // what a server may take.
  void Fill(google::protobuf::Message* message) { Fill(message, 0); }
  // Adds a field that the type lacks to the message or to one nested in it; gives its number.
  int AddUnknown(google::protobuf::Message* message);

  size_t Below(size_t n) { return random_() % n; }

 private:
  void Fill(google::protobuf::Message* message, int depth);
  void SetField(google::protobuf::Message* message, const google::protobuf::FieldDescriptor* field,
                int depth);
  int64_t Whole();
  double Real();
  std::string Text();

  std::mt19937 random_;
};

struct FuzzInput {
  std::string bytes;
  int unknown = 0;  // number of the field that its type lacks; 0: it may have none
};

// Gives `use` so many random messages of the type, as many with an unknown field, and as many
// mutations. The same seed gives the same inputs.
void ForInputs(const google::protobuf::Descriptor& type, uint32_t seed, int count,
               const std::function<void(const FuzzInput&)>& use);

}  // namespace quire
