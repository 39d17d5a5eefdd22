// SumChoice: the way in which sums of each size are taken over the ranks, chosen by timing and kept
// in a file.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <functional>
#include <string>

namespace quire::cuda {

enum class SumMethod : uint8_t { kMeasured, kOneShot, kTwoShot, kNccl };

class SumChoice {
 public:
  // Sizes that are timed, in bytes of one rank's tensor. A smaller or equal tensor takes the method
  // of the size; a larger one than all takes the last.
  static constexpr std::array<int64_t, 6> kSizes = {int64_t{64} << 10, int64_t{256} << 10,
                                                    int64_t{1} << 20,  int64_t{4} << 20,
                                                    int64_t{16} << 20, int64_t{64} << 20};

  // Every size takes `method`.
  explicit SumChoice(SumMethod method) { of_size_.fill(method); }
  // The choice in a text of Text(); false for any other text.
  static bool Parse(const std::string& text, SumChoice* choice);
  // One line: a method for each size.
  std::string Text() const;

  SumMethod For(int64_t bytes) const;
  bool Has(SumMethod method) const { return std::ranges::find(of_size_, method) != of_size_.end(); }
  void Set(size_t index, SumMethod method) { of_size_[index] = method; }

  // A file holds one line for each machine and group: a name of both, a tab, and the text of the
  // choice. Load returns an empty text when there is none; Save returns false if it cannot write.
  static std::string Load(const std::string& file, const std::string& name);
  static bool Save(const std::string& file, const std::string& name, const std::string& text);

 private:
  std::array<SumMethod, kSizes.size()> of_size_{};
};

}  // namespace quire::cuda
