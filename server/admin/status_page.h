// The page at / of the admin port, for people.
#pragma once

#include <string>

#include "engine/engine.h"

namespace quire {

struct StatusFacts {
  std::string state;  // "loading", "ready", "draining", "recovering", "hung"
  std::string model;
  std::string device;
  std::string address;  // of gRPC; empty while loading
  double uptime_seconds = 0;
  int open_streams = 0;
  EngineStats engine;
};

// A complete HTML page without scripts or external resources. It reloads every five seconds.
std::string StatusPage(const StatusFacts& facts);

}  // namespace quire
