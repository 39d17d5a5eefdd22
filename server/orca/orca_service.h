// xds.service.orca.v3.OpenRcaService: load reports out of band.
#pragma once

#include <memory>

#include "engine/engine.h"
#include "server/call/call_resources.h"
#include "server/call/raw_service.h"

namespace quire {

inline constexpr double kMinReportSeconds = 0.1;
inline constexpr double kMaxReportSeconds = 3600;
// Open streams of reports; more are refused (TOO_MANY_STREAMS).
inline constexpr int kMaxReportStreams = 256;

// All parameters outlive the service.
std::unique_ptr<RawService> MakeOrcaService(const CallResources* calls, const Engine* engine,
                                            int32_t max_rows);

}  // namespace quire
