// The server's load as an ORCA report, for load balancers of gRPC, Envoy and the routers of the
// field.
#pragma once

#include <cstdint>
#include <optional>

#include "engine/engine.h"
#include "xds/data/orca/v3/orca_load_report.pb.h"

namespace quire {

// Metadata of a request that asks for the report in the trailers of its answer, whatever its value;
// and the key of that report there, as bytes of an OrcaLoadReport.
inline constexpr char kLoadReportAsked[] = "endpoint-load-metrics-format";
inline constexpr char kLoadReportTrailer[] = "endpoint-load-metrics-bin";

// `predicted_seconds`: to the first token of a short request; nullopt: not known.
xds::data::orca::v3::OrcaLoadReport LoadReportOf(const EngineStats& stats, int32_t max_rows,
                                                 std::optional<double> predicted_seconds);

}  // namespace quire
