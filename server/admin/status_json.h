// The JSON of /status.json and /history.json: what the status page shows. docs/status.md lists
// every name.
#pragma once

#include <string>
#include <vector>

#include "engine/base/log.h"
#include "engine/engine.h"
#include "engine/engine_setup.h"
#include "server/metrics/history.h"
#include "server/metrics/latest_view.h"

namespace quire {

struct StatusFacts {
  std::string state;  // "loading", "ready", "draining", "recovering", "hung"
  std::string version;
  std::string model;
  std::string device;   // empty while loading
  std::string address;  // of gRPC; empty while loading
  double uptime_seconds = 0;
  int open_streams = 0;
  int detached_streams = 0;
  EngineStats engine;
  const EngineSetup* setup = nullptr;  // null while loading
  LatestView::View view;               // null: none was taken yet
  HistorySecond now;
  std::vector<LoggedProblem> problems;  // the newest first
};

std::string StatusJson(const StatusFacts& facts);

// `seconds`: the oldest first.
std::string HistoryJson(const std::vector<HistorySecond>& seconds);

}  // namespace quire
