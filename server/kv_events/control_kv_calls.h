// SubscribeKvEvents and FlushCache of quire.v1.Control.
#pragma once

#include "server/call/raw_service.h"

namespace quire {

struct SessionResources;

// `resources` outlive the service.
void AddKvCalls(RawService* service, SessionResources* resources);

}  // namespace quire
