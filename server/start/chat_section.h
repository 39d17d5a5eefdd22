// The section of --check on the chat template.
#pragma once

#include "server/start/check_report.h"
#include "server/start/checked_model.h"

namespace quire {

// Parses the template and renders two chats. A start goes on without one, so the report gets a
// warning; a file of --chat-template that does not parse ends it.
CheckSection DescribeChatTemplate(const CheckedModel& model, CheckReport& report);

}  // namespace quire
