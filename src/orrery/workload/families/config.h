// A Hugging Face config.json → Model, by the row of its model_type (family.h).
//
// Every key of the file is read by that row, or is known to have no effect on what is predicted
// (data/config_keys.yaml), or is named in `notes`: what costs time or memory that is not counted,
// and what nobody knows, with the nearest name. An encoder of images or sounds beside the text
// model is named there too. Numbers may be NaN or Infinity, as Python writes them.
#pragma once

#include <string>
#include <vector>

#include "orrery/base/status.h"
#include "orrery/workload/families/family.h"
#include "orrery/workload/model.h"

namespace orrery::workload {

// Errors name the file, the field, the value and the remedy; model types that are not modelled are
// refused by name.
Result<Model> ReadConfig(const std::string& path, const families::Families& families,
                         std::vector<std::string>* notes);

}  // namespace orrery::workload
