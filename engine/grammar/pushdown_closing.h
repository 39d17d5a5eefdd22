// FindClosing: how many tokens finish the text from each state of a Pushdown.
#pragma once

#include "engine/grammar/guide_vocabulary.h"
#include "engine/grammar/pushdown.h"

namespace quire {

// Sets `close` and `closing_token` of the states, and `close` of the rules. From every state with a
// finite `close` of at least 1, closing_token leads to a `close` that is less by 1.
void FindClosing(const GuideVocabulary& vocabulary, Pushdown* table);

}  // namespace quire
