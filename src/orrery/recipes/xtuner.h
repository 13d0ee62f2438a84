// xtuner around Hugging Face's models: its configuration's keys, mostly as the Trainer's arguments.
#pragma once

#include "orrery/formats/tree.h"
#include "orrery/recipes/dialects.h"
#include "orrery/recipes/huggingface.h"

namespace orrery::recipes {

// Names of the file's own, which no key of the runner has, are passed over.
void AddXtunerFile(const formats::Document& document, Reading* r);
// What it takes when it is not said otherwise (Hub::defaults).
void XtunerDefaults(const Script* script, Sources* sources, Reading* r);

}  // namespace orrery::recipes
