// The page at / of the admin port, for a person with a browser or a phone.
#pragma once

#include <string>

#include "engine/engine.h"

namespace quire {

struct StatusFacts {
  std::string state;  // "loading", "ready", "draining", "hung"
  std::string model;
  std::string device;
  std::string address;  // of gRPC; empty while loading
  double uptime_seconds = 0;
  int open_streams = 0;
  EngineStats engine;
};

// HTML, complete, without scripts or anything from elsewhere; refreshes itself every few seconds.
std::string StatusPage(const StatusFacts& facts);

}  // namespace quire
