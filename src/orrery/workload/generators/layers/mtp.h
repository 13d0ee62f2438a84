// What a module that predicts a further token has beside its layer and the output layer
// (DeepSeek-V3, 2024, section 2.2): the next token's embedding and the state are normalised, put
// side by side and projected to one width. The layer and the output layer, both of the model's own
// kinds, and the loss run as blocks of theirs, once a module.
//
// Source: megatron/core/transformer/multi_token_prediction.py, read for its behaviour. The
// embedding that the last stage looks tokens up in is a copy; its gradient is summed over the
// embedding's stages in Megatron, which is left out here, and so are the copy's bytes.
#pragma once

#include "orrery/workload/generators/block_writer.h"
#include "orrery/workload/generators/shape.h"

namespace orrery::workload {

graph::Block MtpForward(const Shape& s, Names* names);
graph::Block MtpBackward(const Shape& s, Names* names);

}  // namespace orrery::workload
