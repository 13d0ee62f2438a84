// What a row of fine-tuning (`task` sft or lora) trains and sees, where its columns do not say.
#pragma once

#include "orrery/search/validate/mapping.h"

namespace orrery::search {

// How context-parallel ranks see each other's keys: a ring, but in MLPerf's submissions of LoRA.
void MapCpExchange(const Mapping& m);

// Whether samples are packed into sequences, of which a micro-batch then has one (NeMo's rule).
bool PacksSamples(const Mapping& m);

// Adapters, packed sequences and loss. REQUIRES: degrees, batch, attention and loss are mapped.
//
// NeMo's and Megatron Bridge's fine-tuning recipes pack SQuAD's samples to the sequence length
// (packed_sequence follows performance_mode; scripts/performance), so that attention sees a sample.
// A passage has some 120 words (Rajpurkar et al. 2016), with its question 160 to 200 tokens: 256
// is the power of two above. MLPerf's samples are packed without such bounds (return_cu_seqlen).
void MapTask(const Mapping& m);

}  // namespace orrery::search
