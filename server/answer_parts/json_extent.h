// JsonExtent: where a JSON value ends in a text that comes byte by byte. It counts brackets and
// knows strings, and checks nothing else. One thread.
#pragma once

#include <cstdint>

namespace quire {

class JsonExtent {
 public:
  // Begins an object, a list or a string with its first byte, one of {["
  void Begin(char byte);
  // Takes the next byte. True: the value ended with it.
  bool Push(char byte);

 private:
  int64_t depth_ = 0;
  bool in_string_ = false;
  bool escaped_ = false;
};

}  // namespace quire
