// CallResources: the objects that every call of every service uses. Built by GrpcFront.
#pragma once

#include "server/call/front_options.h"

namespace quire {

class ConnectionTable;
class ServerMetrics;
class TextPool;
class Tracer;

// All members outlive the calls, and any thread may use them.
struct CallResources {
  const FrontOptions& options;
  const Door& door;
  ServerMetrics& metrics;
  ConnectionTable& connections;
  TextPool& text_pool;
  Tracer* const tracer = nullptr;  // null: no call is traced
};

}  // namespace quire
