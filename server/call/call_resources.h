// CallResources: the objects that every call of every service uses. Built by GrpcFront.
#pragma once

#include "server/call/front_options.h"

namespace quire {

class ConnectionTable;
class ServerMetrics;
class TextPool;

// All members outlive the calls, and any thread may use them.
struct CallResources {
  const FrontOptions& options;
  ServerMetrics& metrics;
  ConnectionTable& connections;
  TextPool& text_pool;
};

}  // namespace quire
