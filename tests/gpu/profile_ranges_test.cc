// ProfileRanges as a profiler sees them. This program acts as the profiler, by NVTX's entry point
// for a profiler that is linked in. Needs no device.
#include "kernels/cuda/profile_ranges.h"

#include <nvtx3/nvToolsExt.h>

#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace quire::cuda {
namespace {

using ::testing::ElementsAre;

std::vector<std::string> events;
int domain;

nvtxDomainHandle_t CreateDomain(const char* name) {
  events.push_back(name);
  return reinterpret_cast<nvtxDomainHandle_t>(&domain);
}
int Push(nvtxDomainHandle_t, const nvtxEventAttributes_t* range) {
  events.push_back(range->message.ascii);
  return 0;
}
int Pop(nvtxDomainHandle_t) {
  events.push_back("end");
  return 0;
}

int Attach(NvtxGetExportTableFunc_t get_table) {
  const auto* callbacks =
      static_cast<const NvtxExportTableCallbacks*>(get_table(NVTX_ETID_CALLBACKS));
  NvtxFunctionTable table = nullptr;
  unsigned int size = 0;
  if (callbacks->GetModuleFunctionTable(NVTX_CB_MODULE_CORE2, &table, &size) != 1) return 0;
  *table[NVTX_CBID_CORE2_DomainCreateA] = reinterpret_cast<NvtxFunctionPointer>(CreateDomain);
  *table[NVTX_CBID_CORE2_DomainRangePushEx] = reinterpret_cast<NvtxFunctionPointer>(Push);
  *table[NVTX_CBID_CORE2_DomainRangePop] = reinterpret_cast<NvtxFunctionPointer>(Pop);
  return 1;
}

TEST(ProfileRangesTest, ReportsNamesAndNestingToAProfiler) {
  InitializeInjectionNvtx2_fnptr = Attach;  // read by the first call of NVTX
  {
    ProfileRanges ranges;
    ranges.Begin("step", 12345678901);
    ranges.Begin("layer", 0);
    ranges.End();
    ranges.End();
  }
  EXPECT_THAT(events, ElementsAre("quire", "step 12345678901", "layer 0", "end", "end"));
}

}  // namespace
}  // namespace quire::cuda
