// NVTX is a library of headers only. It looks for a profiler at its first call.
#include "kernels/cuda/profile_ranges.h"

#include <nvtx3/nvToolsExt.h>

#include <array>
#include <cstdio>

namespace quire::cuda {

ProfileRanges::ProfileRanges() : domain_(nvtxDomainCreateA("quire")) {}

ProfileRanges::~ProfileRanges() {
  if (domain_ != nullptr) nvtxDomainDestroy(domain_);
}

void ProfileRanges::Begin(const char* name, int64_t number) {
  if (domain_ == nullptr) return;
  std::array<char, 48> text;
  std::snprintf(text.data(), text.size(), "%s %lld", name, static_cast<long long>(number));
  nvtxEventAttributes_t range{};
  range.version = NVTX_VERSION;
  range.size = NVTX_EVENT_ATTRIB_STRUCT_SIZE;
  range.messageType = NVTX_MESSAGE_TYPE_ASCII;
  range.message.ascii = text.data();
  nvtxDomainRangePushEx(domain_, &range);
}

void ProfileRanges::End() {
  if (domain_ != nullptr) nvtxDomainRangePop(domain_);
}

}  // namespace quire::cuda
